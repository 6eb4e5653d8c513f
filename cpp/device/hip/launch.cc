// The kernels on a stream.
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/stream.hpp"
#include "kernels/hip/kernels.hpp"

namespace symmetra::device::hip {

int32_t Stream::launch_all_reduce(const kernels::AllReduceArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch_all_reduce(handle_, args, geometry)));
}

int32_t Stream::launch_exchange(const kernels::ExchangeArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch_exchange(handle_, args, geometry)));
}

int32_t Stream::launch_counts(const kernels::CountsArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch_counts(handle_, args, geometry)));
}

int32_t Stream::launch_signal(const kernels::SignalArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch_signal(handle_, args, geometry)));
}

int32_t Stream::launch_agree(const kernels::AgreeArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch_agree(handle_, args, geometry)));
}

int32_t Stream::launch_probe(const kernels::ProbeArgs& args, const kernels::Geometry& geometry, uint32_t launches) const noexcept {
  const Current current(context_);
  int32_t code = hipSuccess;
  for (uint32_t i = 0; i < launches && code == hipSuccess; ++i) code = kernels::hip::launch_probe(handle_, args, geometry);
  return settle(context_, static_cast<hipError_t>(code));
}

}  // namespace symmetra::device::hip
