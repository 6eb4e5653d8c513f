// The kernels compiled for AMD GPUs, as the HIP room calls them. No HIP types. Functions return a hipError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::hip {

/// Launches a kernel on `stream`, a hipStream_t of the current device. `args` is the argument block of `kind`.
/// hipErrorInvalidValue where there is no such kernel, or where the launch does not fit what kernels take for granted.
int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::hip
