// Failed calls as symmetra::Error, or as a plain code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cpp/device/gpu/context.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::gpu {

/// The failed call, for the message. `bytes` is omitted if 0.
struct Call {
  const char* name;
  size_t bytes = 0;
};

/// Throws the error of a call: `name` and `words` are the vendor's for `code`. `prefix` is removed from `call.name`.
template <typename Context>
[[noreturn]] void raise(int32_t code, const char* name, const char* words, const Context& context, Call call, const char* prefix = "") {
  std::string message = std::string(prefix) + call.name;
  if (call.bytes != 0) message += '(' + std::to_string(call.bytes) + " bytes)";
  message += " on device " + std::to_string(context.ordinal) + ": " + name + ": " + words;
  const ErrorKind kind = Context::Api::kind_of(code);
  if (kind == ErrorKind::kOutOfMemory && context.ready()) {
    const Cold cold(context);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (context.api.MemGetInfo(&free_bytes, &total_bytes) == Context::Api::Success)
      message += ", " + std::to_string(free_bytes) + " bytes are free";
  }
  static_cast<void>(context.api.GetLastError());
  throw Error(kind, message, code);
}

/// For runtime calls, by their names in api.hpp.
template <typename Context>
void check(typename Context::Api::Error_t code, const Context& context, Call call) {
  using Api = typename Context::Api;
  if (code != Api::Success) raise(code, context.api.GetErrorName(code), context.api.GetErrorString(code), context, call, Api::kPrefix);
}

/// The code for a hot function to return. Also clears the runtime's last error, which the caller's next check would
/// otherwise report.
template <typename Api>
int32_t settle(const Api& api, typename Api::Error_t code) noexcept {
  if (code != Api::Success) static_cast<void>(api.GetLastError());
  return code;
}

}  // namespace symmetra::device::gpu
