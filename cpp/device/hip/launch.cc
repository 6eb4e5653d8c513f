// The kernels on a stream.
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/stream.hpp"
#include "kernels/hip/kernels.hpp"

namespace symmetra::device::hip {

int32_t Stream::launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept {
  const Current current(context_);
  return settle(context_, static_cast<hipError_t>(kernels::hip::launch(handle_, kind, args, geometry)));
}

}  // namespace symmetra::device::hip
