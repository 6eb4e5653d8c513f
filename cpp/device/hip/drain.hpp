// Waiting for all of a device's work without spoiling a capture.
#pragma once

#include <utility>

#include "cpp/device/hip/error.hpp"

namespace symmetra::device::hip {

/// Waits for its device at the end of its life. What must outlast the device's work holds
/// one, declared after it.
///
/// To wait it frees a small allocation of its own: hipFree is documented to wait as
/// hipDeviceSynchronize does, which itself is refused while a stream is being captured.
/// Allocated early, so that the end cannot fail for want of memory.
class Drain {
 public:
  explicit Drain(const Context& context) : context_(context) {
    const Cold cold(context_);
    check(context_.hip.hipMalloc(&held_, 1), context_, {"hipMalloc", 1});
  }
  ~Drain() {
    if (held_ != nullptr) settle(context_, wait());
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  /// Waits now and returns the error of work that failed; to be called once.
  hipError_t wait() noexcept {
    const Cold cold(context_);
    return context_.hip.hipFree(std::exchange(held_, nullptr));
  }

 private:
  const Context& context_;
  void* held_ = nullptr;
};

}  // namespace symmetra::device::hip
