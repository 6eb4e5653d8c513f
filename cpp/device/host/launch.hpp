// Runs a kernel on OS threads, one a device thread.
#pragma once

#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "kernels/args.hpp"
#include "kernels/host/kernels.hpp"

namespace symmetra::device::host {

/// Most device threads of a launch: all of them run at once.
constexpr uint64_t kMaxLaunchThreads = 4096;

/// A kernel with its arguments by value.
struct Kernel {
  kernels::host::Entry entry;
  kernels::Geometry geometry;
  alignas(16) std::byte args[kernels::host::kMostArgsBytes];

  Kernel(kernels::host::Entry kernel_entry, const kernels::Geometry& kernel_geometry, const void* kernel_args, size_t bytes) noexcept
      : entry(kernel_entry), geometry(kernel_geometry) {
    std::memcpy(args, kernel_args, bytes);
  }
};

/// 0, or EINVAL for a shape outside the limits.
int32_t check_geometry(const kernels::Geometry& geometry) noexcept;

/// The threads of one stream. Used by the stream's worker alone, which is the first of them.
class Crew {
 public:
  Crew() = default;
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// Runs all blocks and threads at once, because ranks wait for each other, and returns
  /// when all are done. 0, or an errno when threads or memory could not be had; nothing ran then.
  int32_t run(const Kernel& kernel) noexcept;

 private:
  struct Free {
    void operator()(uint8_t* memory) const noexcept { ::operator delete(memory, kSharedAlignment); }
  };
  static constexpr std::align_val_t kSharedAlignment{64};  // blocks share no cache line

  void prepare(const kernels::Geometry& geometry);
  void grow(size_t members);
  void serve(uint64_t member, uint64_t seen) noexcept;
  void run_thread(const Kernel& kernel, uint64_t index) noexcept;

  uint32_t barrier_threads_ = 0;
  std::deque<std::barrier<>> barriers_;  // one a block
  uint32_t shared_bytes_ = 0;
  std::vector<std::unique_ptr<uint8_t, Free>> shared_;  // one a block

  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  uint64_t launches_ = 0;
  const Kernel* kernel_ = nullptr;
  uint64_t wanted_ = 0;   // members that take part, the worker not counted
  uint64_t running_ = 0;  // of those, not yet done
  bool stopping_ = false;
  std::vector<std::thread> members_;  // last: they use the rest
};

}  // namespace symmetra::device::host
