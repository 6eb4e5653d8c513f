// The kernels compiled by nvcc, for the CUDA backend. No CUDA types, so that the host compiler alone builds the backend. Functions return a
// cudaError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::cuda {

/// Loads every kernel into the current context. Otherwise the runtime loads a kernel at its first launch, and may wait for the context's
/// work: for kernels that wait for a peer that waits for this launch.
int32_t load_all() noexcept;

/// Whether the kernels of the current device were compiled for a chip with clusters.
bool has_clusters() noexcept;

/// Launches a kernel on `stream`, a cudaStream_t. `args` is the argument block of `kind`. Returns cudaErrorInvalidValue if there is no such
/// kernel, or if the launch violates a kernel's assumptions.
int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::cuda
