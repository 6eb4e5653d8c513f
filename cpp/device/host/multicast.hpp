// Multicast objects of the host device. Kernels reach the memory of each rank through a table of addresses; the object keeps the rules of a
// GPU's: how many devices there are, which steps they have made, and an address at which no ordinary access works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::host {

std::unique_ptr<MulticastObject> create_multicast(size_t bytes, uint32_t devices);
/// Takes ownership of `fd`, also if it throws.
std::unique_ptr<MulticastObject> import_multicast(int32_t fd, size_t bytes);

}  // namespace symmetra::device::host
