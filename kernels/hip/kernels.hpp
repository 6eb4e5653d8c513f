// The kernels compiled for AMD GPUs, for the HIP backend. No HIP types. Functions return a hipError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::hip {

/// Launches a kernel on `stream`, a hipStream_t of the current device. `args` is the argument block of `kind`. Returns hipErrorInvalidValue
/// if there is no such kernel, or if the launch violates a kernel's assumptions.
int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::hip
