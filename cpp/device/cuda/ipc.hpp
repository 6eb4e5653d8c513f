// Memory of the plain allocator shared between processes, and between devices of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

IpcHandle export_ipc(const Context& context, const uint8_t* base);
std::unique_ptr<Memory> import_ipc(const Context& context, const IpcHandle& handle, size_t bytes);
void enable_peer(const Context& context, int32_t ordinal);
bool can_access(const Context& context, int32_t ordinal);

}  // namespace symmetra::device::cuda
