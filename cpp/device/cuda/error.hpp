// Failed calls of the runtime and the driver become symmetra::Error, or a plain code.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cpp/device/cuda/context.hpp"

namespace symmetra::device::cuda {

/// What was called, for the message. `bytes` is left out where it is 0.
struct Call {
  const char* name;
  size_t bytes = 0;
};

[[noreturn]] void fail(cudaError_t code, const Context& context, Call call);
[[noreturn]] void fail(CUresult code, const Context& context, Call call);

inline void check(cudaError_t code, const Context& context, Call call) {
  if (code != cudaSuccess) fail(code, context, call);
}
inline void check(CUresult code, const Context& context, Call call) {
  if (code != CUDA_SUCCESS) fail(code, context, call);
}

/// The code for a hot function to return. The runtime also keeps it as its last error,
/// where the caller's next check would find it.
inline int32_t settle(cudaError_t code) noexcept {
  if (code != cudaSuccess) cudaGetLastError();
  return code;
}

}  // namespace symmetra::device::cuda
