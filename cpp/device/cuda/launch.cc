// The kernels on a stream.
#include "cpp/device/cuda/error.hpp"
#include "cpp/device/cuda/stream.hpp"
#include "kernels/cuda/kernels.hpp"

namespace symmetra::device::cuda {

int32_t Stream::launch_all_reduce(const kernels::AllReduceArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch_all_reduce(handle_, args, geometry)));
}

int32_t Stream::launch_exchange(const kernels::ExchangeArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch_exchange(handle_, args, geometry)));
}

int32_t Stream::launch_counts(const kernels::CountsArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch_counts(handle_, args, geometry)));
}

int32_t Stream::launch_signal(const kernels::SignalArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch_signal(handle_, args, geometry)));
}

int32_t Stream::launch_agree(const kernels::AgreeArgs& args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch_agree(handle_, args, geometry)));
}

}  // namespace symmetra::device::cuda
