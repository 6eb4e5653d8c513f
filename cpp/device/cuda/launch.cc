// The kernels on a stream.
#include "cpp/device/cuda/error.hpp"
#include "cpp/device/cuda/stream.hpp"
#include "kernels/cuda/kernels.hpp"

namespace symmetra::device::cuda {

int32_t Stream::launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(static_cast<cudaError_t>(kernels::cuda::launch(handle_, kind, args, geometry)));
}

}  // namespace symmetra::device::cuda
