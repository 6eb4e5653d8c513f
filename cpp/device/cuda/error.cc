#include "cpp/device/cuda/error.hpp"

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::cuda {
namespace {

// Codes that mean the same have the same number in the runtime and the driver.
static_assert(int{cudaErrorMemoryAllocation} == int{CUDA_ERROR_OUT_OF_MEMORY});
static_assert(int{cudaErrorNotSupported} == int{CUDA_ERROR_NOT_SUPPORTED});
static_assert(int{cudaErrorPeerAccessUnsupported} == int{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED});

ErrorKind kind_of(int32_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::kOutOfMemory;
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kDevice;
  }
}

[[noreturn]] void raise(int32_t code, const char* name, const char* words, const Context& context, Call call) {
  std::string message = call.name;
  if (call.bytes != 0) message += '(' + std::to_string(call.bytes) + " bytes)";
  message += " on device " + std::to_string(context.ordinal) + ": " + name + ": " + words;
  const ErrorKind kind = kind_of(code);
  if (kind == ErrorKind::kOutOfMemory && context.handle != nullptr) {
    const Cold cold(context);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) message += ", " + std::to_string(free_bytes) + " bytes are free";
  }
  cudaGetLastError();
  throw Error(kind, message, code);
}

}  // namespace

void fail(cudaError_t code, const Context& context, Call call) {
  raise(code, cudaGetErrorName(code), cudaGetErrorString(code), context, call);
}

void fail(CUresult code, const Context& context, Call call) {
  const char* name = nullptr;
  const char* words = nullptr;
  context.driver.cuGetErrorName(code, &name);
  context.driver.cuGetErrorString(code, &words);
  raise(code, name != nullptr ? name : "unknown CUresult", words != nullptr ? words : std::to_string(code).c_str(), context, call);
}

}  // namespace symmetra::device::cuda
