// How the CPU's translation units name kernels, and which of them compiles which.
#pragma once
#include "kernels/dispatch.hpp"
#include "kernels/host/kernels.hpp"

namespace symmetra::kernels::host {

template <class Args, void (*kernel)(const Args&)>
void run(const void* args) {
  kernel(*static_cast<const Args*>(args));
}

struct Backend {
  using Entry = host::Entry;
  static constexpr bool kThreadAnItem = false;
  template <auto kernel>
  static Entry entry() {
    return wrapped<kernel>(kernel);
  }

 private:
  template <auto kernel, class Args>
  static Entry wrapped(void (*)(const Args&)) {
    return &run<Args, kernel>;
  }
};

}  // namespace symmetra::kernels::host

namespace symmetra::kernels {

// sums.cc
extern template host::Entry sum_kernel<host::Backend, F32>(uint32_t algorithm, uint32_t world);
extern template host::Entry sum_kernel<host::Backend, F16>(uint32_t algorithm, uint32_t world);
extern template host::Entry sum_kernel<host::Backend, BF16>(uint32_t algorithm, uint32_t world);
// reductions.cc
extern template host::Entry any_reduction_kernel<host::Backend>(uint32_t algorithm, uint32_t dtype);
// reducing.cc
extern template host::Entry reducing_kernel<host::Backend>(const ExchangeArgs& args);

}  // namespace symmetra::kernels
