// Legacy IPC handles: the host has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::host {

[[noreturn]] IpcHandle export_ipc(const uint8_t* base);
[[noreturn]] std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes);

}  // namespace symmetra::device::host
