// The kernels compiled for the CPU.
#include "kernels/host/kernels.hpp"

#include "kernels/dispatch.hpp"

namespace symmetra::kernels::host {
namespace {

template <class Args, void (*kernel)(const Args&)>
void run(const void* args) {
  kernel(*static_cast<const Args*>(args));
}

struct Backend {
  using Entry = host::Entry;
  template <void (*kernel)(const AllReduceArgs&)>
  static Entry entry() {
    return &run<AllReduceArgs, kernel>;
  }
  template <void (*kernel)(const ExchangeArgs&)>
  static Entry entry() {
    return &run<ExchangeArgs, kernel>;
  }
};

template <auto kernel, class Args>
Entry fitting(const Args& args, const Geometry& geometry) {
  return fits(args, geometry) ? &run<Args, kernel> : nullptr;
}

}  // namespace

Entry all_reduce(const AllReduceArgs& args, const Geometry& geometry) noexcept {
  return fits(args, geometry) ? all_reduce_kernel<Backend>(args.algorithm, args.dtype, args.reduction, args.world) : nullptr;
}
Entry exchange(const ExchangeArgs& args, const Geometry& geometry) noexcept {
  return fits(args, geometry) ? exchange_kernel<Backend>(args) : nullptr;
}
Entry counts(const CountsArgs& args, const Geometry& geometry) noexcept { return fitting<&exchange_counts>(args, geometry); }
Entry signal(const SignalArgs& args, const Geometry& geometry) noexcept { return fitting<&kernels::signal>(args, geometry); }
Entry agree(const AgreeArgs& args, const Geometry& geometry) noexcept { return fitting<&kernels::agree>(args, geometry); }
Entry probe(const ProbeArgs& args, const Geometry& geometry) noexcept { return fitting<&kernels::probe>(args, geometry); }

}  // namespace symmetra::kernels::host
