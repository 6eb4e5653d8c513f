// The kernels compiled for the CPU, as the host device calls them.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels::host {

/// One device thread's run of a kernel. The caller has set platform::host::current.
using Entry = void (*)(const void* args);

/// nullptr where there is no such kernel. `args` is an AllReduceArgs.
Entry all_reduce(uint32_t algorithm, uint32_t dtype, uint32_t reduction, uint32_t world) noexcept;
/// nullptr where there is no such kernel. `args` is an ExchangeArgs.
Entry exchange(const ExchangeArgs& args) noexcept;
/// `args` is a CountsArgs.
Entry counts() noexcept;
/// `args` is a SignalArgs.
Entry signal() noexcept;
/// `args` is an AgreeArgs.
Entry agree() noexcept;

}  // namespace symmetra::kernels::host
