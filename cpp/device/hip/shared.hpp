// Memory that other ranks map, exported as a file descriptor. It is uncached or fine-grained: a kernel must not read
// stale cache lines of data that peers write while it runs.
//
// Two methods exist. If the runtime supports uncached physical memory (physical.hpp), that memory is exported as a
// descriptor. Otherwise fine-grained plain memory (grained.hpp) is exported by a legacy IPC handle, and the descriptor
// is a small file that contains the handle.
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

/// Memory of this process that its other devices can map.
class SharedMemory : public Memory {
 public:
  virtual std::unique_ptr<Memory> alias(const Context& context) const = 0;
};

}  // namespace symmetra::device::hip
