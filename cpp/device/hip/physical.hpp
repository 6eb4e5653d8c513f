// Uncached physical memory, mapped at reserved addresses and exported as a file descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/hip/context.hpp"
#include "cpp/device/hip/shared.hpp"

namespace symmetra::device::hip {

size_t physical_granularity(const Context& context);
std::unique_ptr<Memory> allocate_physical(const Context& context, size_t bytes);
/// The caller keeps `fd`.
std::unique_ptr<Memory> import_physical(const Context& context, int32_t fd, size_t bytes);

}  // namespace symmetra::device::hip
