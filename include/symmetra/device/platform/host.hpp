// The platform of the kernels on a CPU: a device thread is an OS thread, a block's
// sync a std::barrier, an atomic a std::atomic_ref with the order the kernel asks for.
#pragma once

#include <barrier>
#include <cstdint>

namespace symmetra::platform::host {

/// Who the calling thread is in the launch it works for. Set by the launcher.
struct Thread {
  uint32_t thread;
  uint32_t threads;  ///< in the block
  uint32_t block;
  uint32_t blocks;
  std::barrier<>* barrier;  ///< of the block; may be null when threads == 1
  uint8_t* shared;          ///< of the block, 16-byte aligned
};
inline thread_local Thread current{};

}  // namespace symmetra::platform::host
