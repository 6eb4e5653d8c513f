// Failed calls of the runtime become symmetra::Error, or a plain code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// What was called, for the message. `bytes` is left out where it is 0.
struct Call {
  const char* name;
  size_t bytes = 0;
};

[[noreturn]] void fail(hipError_t code, const Context& context, Call call);

inline void check(hipError_t code, const Context& context, Call call) {
  if (code != hipSuccess) fail(code, context, call);
}

/// The code for a hot function to return. The runtime also keeps it as its last error,
/// where the caller's next check would find it.
inline int32_t settle(const Context& context, hipError_t code) noexcept {
  if (code != hipSuccess) static_cast<void>(context.hip.hipGetLastError());
  return code;
}

}  // namespace symmetra::device::hip
