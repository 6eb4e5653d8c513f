// Multicast objects by the driver, only in builds with the feature: other builds do not contain the names of the
// driver's functions. Never run.
#pragma once

#ifdef SYMMETRA_MULTICAST

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

size_t multicast_unit(const Context& context, uint32_t devices);
std::unique_ptr<MulticastObject> new_multicast(const Context& context, size_t bytes, uint32_t devices);
/// Takes ownership of `fd`, also if it throws.
std::unique_ptr<MulticastObject> open_multicast(const Context& context, int32_t fd, size_t bytes);

}  // namespace symmetra::device::cuda

#endif
