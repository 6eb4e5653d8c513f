// Waiting for all of a device's work without spoiling a capture.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "cpp/device/cuda/error.hpp"

namespace symmetra::device::cuda {

/// Waits for its device at the end of its life. What must outlast the device's work holds
/// one, declared after it.
///
/// To wait it frees a small allocation of its own: cudaFree is documented to wait for all
/// streams. cudaDeviceSynchronize would, while any stream of the process is being captured,
/// fail and invalidate that capture. Allocated early, so that the end cannot fail for want of memory.
class Drain {
 public:
  explicit Drain(const Context& context) : context_(context) {
    const Cold cold(context_);
    check(cudaMalloc(&held_, 1), context_, {"cudaMalloc", 1});
  }
  ~Drain() {
    if (held_ != nullptr) settle(wait());
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  /// Waits now and returns the error of work that failed; to be called once.
  cudaError_t wait() noexcept {
    const Cold cold(context_);
    return cudaFree(std::exchange(held_, nullptr));
  }

 private:
  const Context& context_;
  void* held_ = nullptr;
};

}  // namespace symmetra::device::cuda
