// A device of this process, and how an entry makes it the thread's own for a while.
#pragma once

#include <cstdint>

#include "cpp/device/hip/runtime.hpp"

namespace symmetra::device::hip {

struct Context {
  const Runtime& hip;
  int32_t ordinal;
};

/// The context of a device that exists, with this library's kernels loaded by the first call.
/// Never given back: objects may refer to it for ever.
const Context& primary(int32_t ordinal);

/// Makes a device current; gives the thread its own back at the end.
class Current {
 public:
  explicit Current(const Context& context) noexcept : hip_(context.hip) {
    switched_ = hip_.hipGetDevice(&previous_) != hipSuccess || previous_ != context.ordinal;
    if (switched_) static_cast<void>(hip_.hipSetDevice(context.ordinal));
  }
  ~Current() {
    if (switched_ && previous_ >= 0) static_cast<void>(hip_.hipSetDevice(previous_));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Runtime& hip_;
  int previous_ = -1;
  bool switched_;
};

/// Current for cold entries: also lets the thread allocate, free and query while some
/// thread captures a stream, which would otherwise fail and spoil that capture.
class Cold {
 public:
  explicit Cold(const Context& context) noexcept : hip_(context.hip), current_(context) { exchange(); }
  ~Cold() { exchange(); }
  Cold(const Cold&) = delete;
  Cold& operator=(const Cold&) = delete;

 private:
  void exchange() noexcept { static_cast<void>(hip_.hipThreadExchangeStreamCaptureMode(&mode_)); }

  const Runtime& hip_;
  Current current_;
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};

}  // namespace symmetra::device::hip
