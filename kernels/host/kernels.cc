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

}  // namespace

Entry all_reduce(uint32_t algorithm, uint32_t dtype, uint32_t reduction, uint32_t world) noexcept {
  return all_reduce_kernel<Backend>(algorithm, dtype, reduction, world);
}
Entry exchange(const ExchangeArgs& args) noexcept { return exchange_kernel<Backend>(args); }
Entry counts() noexcept { return &run<CountsArgs, &exchange_counts>; }
Entry signal() noexcept { return &run<SignalArgs, &kernels::signal>; }
Entry agree() noexcept { return &run<AgreeArgs, &kernels::agree>; }

}  // namespace symmetra::kernels::host
