/// \file
/// Kernels of the caller on the host device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "symmetra/capture.hpp"

namespace symmetra {

/// The blocks of a launch on the host device, and the threads of each.
struct HostShape {
  std::uint32_t blocks = 1;   ///< 1 to 256
  std::uint32_t threads = 1;  ///< at least 1; 4096 at most in all blocks
};

namespace core {

/// The most bytes of what `launch` copies.
constexpr std::size_t kMostLaunchBytes = 1024;

/// A kernel and its arguments, which a launch copies together.
template <class Args>
struct Launched {
  void (*kernel)(const Args& args);
  Args args;
  static void run(const void* launched) {
    const auto& self = *static_cast<const Launched*>(launched);
    self.kernel(self.args);
  }
};

}  // namespace core

/// Runs a function with a copy of `bytes` bytes at `launched`: what `launch` calls.
void launch_bytes(HostShape shape, void (*entry)(const void* launched), const void* launched, std::size_t bytes, Queue queue);

/// Runs a function of this process as a kernel of the host device, in the order of a stream or in a graph: each thread of each block
/// calls `kernel` with a copy of `args`. All blocks run at once. Enqueues and returns.
///
/// With the headers of symmetra/device the kernel finds its place by platform::thread() and platform::block(), and 48 KiB of memory of
/// its block at platform::shared(). It must not throw. What it reaches through `args` must live until the work is done, or as long as a
/// captured graph and its launches. On a GPU, launch the kernel by the GPU's own runtime.
///
/// Throws kUnsupported on a GPU, and on a stream that is being captured; kInvalidArgument for a shape outside its limits; kDevice if the
/// launch fails.
template <class Args>
void launch(HostShape shape, void (*kernel)(const Args& args), const Args& args, Queue queue) {
  using Launched = core::Launched<Args>;
  static_assert(std::is_trivially_copyable_v<Args>, "arguments of a kernel are copied as bytes");
  static_assert(sizeof(Launched) <= core::kMostLaunchBytes, "a kernel takes at most 1008 bytes of arguments");
  static_assert(alignof(Launched) <= 16, "arguments of a kernel are aligned to at most 16 bytes");
  const Launched launched{kernel, args};
  launch_bytes(shape, &Launched::run, &launched, sizeof(launched), queue);
}

}  // namespace symmetra
