// Multicast objects of the host device. Kernels access the memory of each rank through a table of addresses; the object
// enforces the rules of a GPU's: the number of devices, the order of steps, and an address at which ordinary accesses
// fault.
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
