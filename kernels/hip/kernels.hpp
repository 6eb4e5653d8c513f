// Launchers of the kernels compiled for AMD GPUs, as the HIP room calls them. No HIP types. All
// return a hipError_t.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::hip {

/// `stream` is a hipStream_t of the current device. hipErrorInvalidValue where there is no such kernel.
int32_t launch_all_reduce(void* stream, const AllReduceArgs& args, const Geometry& geometry) noexcept;
int32_t launch_exchange(void* stream, const ExchangeArgs& args, const Geometry& geometry) noexcept;
int32_t launch_counts(void* stream, const CountsArgs& args, const Geometry& geometry) noexcept;
int32_t launch_signal(void* stream, const SignalArgs& args, const Geometry& geometry) noexcept;
int32_t launch_agree(void* stream, const AgreeArgs& args, const Geometry& geometry) noexcept;
int32_t launch_probe(void* stream, const ProbeArgs& args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::hip
