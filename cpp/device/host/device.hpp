// The host device: a CPU that runs the same kernel sources.
#pragma once

#include "cpp/device/device.hpp"

namespace symmetra::device::host {

/// Always 1.
uint32_t count() noexcept;
/// Any ordinal from 0 on; every call creates a device that shares nothing with the others.
std::shared_ptr<device::Device> open(int32_t ordinal);

}  // namespace symmetra::device::host
