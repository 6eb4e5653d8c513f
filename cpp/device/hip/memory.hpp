// Memory of one process: the plain allocator, host memory the device addresses, and what a pointer is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

std::unique_ptr<Memory> allocate(const Context& context, size_t bytes);
std::unique_ptr<Memory> pin(const Context& context, uint8_t* address, size_t bytes);
PointerInfo classify(const Context& context, const uint8_t* pointer);

/// Memory whose export_fd always throws: everything but allocate_shared's.
class LocalMemory : public Memory {
 public:
  int32_t export_fd() const final;
};

}  // namespace symmetra::device::hip
