// Waiting for all of a device's work without spoiling a capture.
#pragma once

#include <utility>

#include "cpp/device/gpu/error.hpp"

namespace symmetra::device::gpu {

/// Waits for its device at the end of its life. What must outlast the device's work holds
/// one, declared after it.
///
/// To wait it frees a small allocation of its own: cudaFree is documented to wait for all streams, hipFree to wait as
/// hipDeviceSynchronize does. To synchronize the device would, while any stream of the process is being captured,
/// fail and on CUDA invalidate that capture. Allocated early, so that the end cannot fail for want of memory.
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

  /// Waits now and returns the error of work that failed; to be called once.
  typename Context::Api::Error_t wait() noexcept {
    const Cold cold(context_);
    return context_.api.Free(std::exchange(held_, nullptr));
  }

 private:
  const Context& context_;
  void* held_ = nullptr;
};

}  // namespace symmetra::device::gpu
