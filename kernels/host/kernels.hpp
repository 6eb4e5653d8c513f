// The kernels compiled for the CPU, as the host device calls them.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::host {

/// One device thread's run of a kernel. The caller has set platform::host::current.
using Entry = void (*)(const void* args);

/// The kernel of a launch, to be called with these `args`. nullptr where there is none, or where the launch
/// does not fit what kernels take for granted.
Entry all_reduce(const AllReduceArgs& args, const Geometry& geometry) noexcept;
Entry exchange(const ExchangeArgs& args, const Geometry& geometry) noexcept;
Entry counts(const CountsArgs& args, const Geometry& geometry) noexcept;
Entry signal(const SignalArgs& args, const Geometry& geometry) noexcept;
Entry agree(const AgreeArgs& args, const Geometry& geometry) noexcept;
Entry probe(const ProbeArgs& args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::host
