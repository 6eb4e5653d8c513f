// Memory that other ranks map: physical memory, exported as a file descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

size_t granularity(const Context& context);
std::unique_ptr<Memory> new_shared(const Context& context, size_t bytes);
/// Gives all devices that can address the owner access to memory of new_shared.
void admit_peers(const Memory& memory);
std::unique_ptr<Memory> open_shared(const Context& context, int32_t fd, size_t bytes);
std::unique_ptr<Memory> shared_alias(const Context& context, const Memory& memory);

}  // namespace symmetra::device::cuda
