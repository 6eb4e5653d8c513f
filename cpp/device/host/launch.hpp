// Runs a kernel on OS threads, one for each device thread.
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

/// The most device threads of a launch, which all run at once.
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

/// The threads of one stream. One thread at a time uses the object, and is the first of the threads: the stream's worker, or its
/// guest (queue.hpp).
class Crew {
 public:
  Crew() = default;
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// Runs all blocks and threads at once, because ranks wait for each other, and returns after all are done. Returns 0,
  /// or an errno if threads or memory are not available; nothing has run in this case.
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
  std::deque<std::barrier<>> barriers_;  // one for each block
  uint32_t shared_bytes_ = 0;
  std::vector<std::unique_ptr<uint8_t, Free>> shared_;  // one for each block

  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  uint64_t launches_ = 0;
  const Kernel* kernel_ = nullptr;
  uint64_t wanted_ = 0;   // members that take part, without the first thread
  uint64_t running_ = 0;  // members that take part and are not yet done
  bool stopping_ = false;
  std::vector<std::thread> members_;  // last: they use the rest
};

}  // namespace symmetra::device::host
