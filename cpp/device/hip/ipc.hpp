// Memory of the plain allocator shared between processes, and between devices of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// Whether the runtime exports the allocation at `base`. Tried, since it does not tell: memory
/// mapped by address-range calls has no such handle.
bool is_exportable(const Context& context, const uint8_t* base);
IpcHandle export_ipc(const Context& context, const uint8_t* base);
std::unique_ptr<Memory> import_ipc(const Context& context, const IpcHandle& handle, size_t bytes);
void enable_peer(const Context& context, int32_t ordinal);
bool can_access(const Context& context, int32_t ordinal);

}  // namespace symmetra::device::hip
