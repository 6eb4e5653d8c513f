// Launchers of the kernels compiled by nvcc, as the CUDA room calls them. No CUDA types,
// so that the room is built by the host compiler alone. All return a cudaError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::cuda {

/// Loads every kernel into the current context. The runtime else loads one when it is first launched, and may
/// then wait for the context's work: kernels that wait for a peer who waits for this launch.
int32_t load_all() noexcept;

/// `stream` is a cudaStream_t. cudaErrorInvalidValue where there is no such kernel.
int32_t launch_all_reduce(void* stream, const AllReduceArgs& args, const Geometry& geometry) noexcept;
int32_t launch_exchange(void* stream, const ExchangeArgs& args, const Geometry& geometry) noexcept;
int32_t launch_counts(void* stream, const CountsArgs& args, const Geometry& geometry) noexcept;
int32_t launch_signal(void* stream, const SignalArgs& args, const Geometry& geometry) noexcept;
int32_t launch_agree(void* stream, const AgreeArgs& args, const Geometry& geometry) noexcept;
int32_t launch_probe(void* stream, const ProbeArgs& args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::cuda
