// A device's primary context, and how an entry makes it the thread's own for a while.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cpp/device/cuda/driver.hpp"

namespace symmetra::device::cuda {

struct Context {
  const Driver& driver;
  int32_t ordinal;
  CUcontext handle;
};

/// The primary context of a device that exists. Retained by the first call and, as the
/// runtime itself does, never given back: objects may refer to it for ever.
const Context& primary(int32_t ordinal);

/// Makes a context current; gives the thread its own back at the end, none included.
/// Contexts are compared instead of ordinals, since the caller's may not be the primary.
class Current {
 public:
  explicit Current(const Context& context) noexcept : driver_(context.driver) {
    driver_.cuCtxGetCurrent(&previous_);
    switched_ = previous_ != context.handle;
    if (switched_) driver_.cuCtxSetCurrent(context.handle);
  }
  ~Current() {
    if (switched_) driver_.cuCtxSetCurrent(previous_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
  bool switched_;
};

/// Current for cold entries: also lets the thread allocate, free and query while some
/// thread captures a stream, which would otherwise fail and spoil that capture.
class Cold {
 public:
  explicit Cold(const Context& context) noexcept : current_(context) { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Cold() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Cold(const Cold&) = delete;
  Cold& operator=(const Cold&) = delete;

 private:
  Current current_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace symmetra::device::cuda
