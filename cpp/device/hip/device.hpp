// HIP devices. No HIP types, so that who opens one needs no HIP headers.
#pragma once

#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::hip {

/// 0 where there is no runtime or no device.
uint32_t count() noexcept;
std::shared_ptr<Device> open(int32_t ordinal);

}  // namespace symmetra::device::hip
