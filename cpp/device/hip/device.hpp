// HIP devices, without HIP types, so that callers need no HIP headers.
#pragma once

#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::hip {

/// 0 without a runtime or a device.
uint32_t count() noexcept;
std::shared_ptr<Device> open(int32_t ordinal);
/// The ordinal of the calling thread's device; 0 on a thread that has chosen none.
int32_t current();

}  // namespace symmetra::device::hip
