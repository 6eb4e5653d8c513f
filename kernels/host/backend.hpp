// The CPU's kernels by name, and the translation unit that compiles each.
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
  static constexpr bool kNormsOfAWorld = false;
  static constexpr bool kClusters = false;
  static constexpr bool kQuantisesAtOnce = true;
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
extern template host::Entry sum_kernel<host::Backend, F32>(const AllReduceArgs& args);
extern template host::Entry sum_kernel<host::Backend, F16>(const AllReduceArgs& args);
extern template host::Entry sum_kernel<host::Backend, BF16>(const AllReduceArgs& args);
// reductions.cc
extern template host::Entry any_reduction_kernel<host::Backend>(const AllReduceArgs& args);
// quantised.cc
extern template host::Entry quantised_kernel<host::Backend>(const AllReduceArgs& args);
// reducing.cc
extern template host::Entry reducing_kernel<host::Backend>(const ExchangeArgs& args);
// norms.cc
extern template host::Entry summed_norm_kernel<host::Backend>(const NormArgs& args);
extern template host::Entry fused_norm_kernel<host::Backend>(const FusedNormArgs& args);
extern template host::Entry summed_norm_kernel<host::Backend>(const LayerNormArgs& args);
extern template host::Entry fused_norm_kernel<host::Backend>(const FusedLayerNormArgs& args);
// multicast.cc
extern template host::Entry multicast_kernel<host::Backend>(const MulticastArgs& args);
// experts.cc
extern template host::Entry experts_kernel<host::Backend>(const RouteArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const MoveArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const PushArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const SendArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const ReceiveArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const CombineArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const CombineDirectArgs& args);
extern template host::Entry experts_kernel<host::Backend>(const CombinePacketArgs& args);

}  // namespace symmetra::kernels
