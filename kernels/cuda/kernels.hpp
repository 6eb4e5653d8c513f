// The kernels compiled by nvcc, as the CUDA room calls them. No CUDA types, so that the room is built by the
// host compiler alone. Functions return a cudaError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::cuda {

/// Loads every kernel into the current context. The runtime else loads one when it is first launched, and may
/// then wait for the context's work: kernels that wait for a peer who waits for this launch.
int32_t load_all() noexcept;

/// Launches a kernel on `stream`, a cudaStream_t. `args` is the argument block of `kind`. cudaErrorInvalidValue where
/// there is no such kernel, or where the launch does not fit what kernels take for granted.
int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::cuda
