#include "cpp/device/hip/error.hpp"

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

ErrorKind kind_of(hipError_t code) {
  switch (code) {
    case hipErrorOutOfMemory:
      return ErrorKind::kOutOfMemory;
    case hipErrorNotSupported:
    case hipErrorPeerAccessUnsupported:
    case hipErrorNoBinaryForGpu:
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kDevice;
  }
}

}  // namespace

void fail(hipError_t code, const Context& context, Call call) {
  std::string message = call.name;
  if (call.bytes != 0) message += '(' + std::to_string(call.bytes) + " bytes)";
  message += " on device " + std::to_string(context.ordinal) + ": " + context.hip.hipGetErrorName(code) + ": ";
  message += context.hip.hipGetErrorString(code);
  const ErrorKind kind = kind_of(code);
  if (kind == ErrorKind::kOutOfMemory) {
    const Cold cold(context);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (context.hip.hipMemGetInfo(&free_bytes, &total_bytes) == hipSuccess)
      message += ", " + std::to_string(free_bytes) + " bytes are free";
  }
  settle(context, code);
  throw Error(kind, message, code);
}

}  // namespace symmetra::device::hip
