// Waiting for all work of a device without invalidating a capture.
#pragma once

#include <utility>

#include "cpp/device/gpu/error.hpp"

namespace symmetra::device::gpu {

/// Waits for its device when it is destroyed. An object that must outlive the device's work holds a Drain, declared
/// after it.
///
/// It waits by freeing a small allocation: cudaFree is documented to wait for all streams, hipFree to wait like
/// hipDeviceSynchronize. Synchronizing the device would fail while any stream of the process is being captured, and on
/// CUDA invalidate that capture. The allocation is made early, so that the wait cannot fail for lack of memory.
template <typename Context>
class Drain {
 public:
  explicit Drain(const Context& context) : context_(context) {
    const Cold cold(context_);
    check(context_.api.Malloc(&held_, 1), context_, {"Malloc", 1});
  }
  ~Drain() {
    if (held_ != nullptr) settle(context_.api, wait());
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  /// Waits now and returns the error of failed work. Call once.
  typename Context::Api::Error_t wait() noexcept {
    const Cold cold(context_);
    return context_.api.Free(std::exchange(held_, nullptr));
  }

 private:
  const Context& context_;
  void* held_ = nullptr;
};

}  // namespace symmetra::device::gpu
