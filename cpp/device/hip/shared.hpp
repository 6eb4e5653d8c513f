// Memory that other ranks map, passed on as a file descriptor. It is uncached or fine-grained:
// what peers write while a kernel runs must not meet old lines of a cache.
//
// Two ways lead there. Physical memory (physical.hpp) is exported as a descriptor itself, where
// the runtime has it uncached. Elsewhere plain memory of the right grain (grained.hpp) is exported
// by a legacy IPC handle, and the descriptor is a small file that holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

size_t granularity(const Context& context);
std::unique_ptr<Memory> new_shared(const Context& context, size_t bytes);
std::unique_ptr<Memory> open_shared(const Context& context, int32_t fd, size_t bytes);
std::unique_ptr<Memory> shared_alias(const Context& context, const Memory& memory);

/// Memory of this process, which another of its devices can map.
class SharedMemory : public Memory {
 public:
  virtual std::unique_ptr<Memory> alias(const Context& context) const = 0;
};

}  // namespace symmetra::device::hip
