// CUDA devices. No CUDA types, so that who opens one needs no CUDA headers.
#pragma once

#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

/// 0 where there is no driver.
uint32_t count() noexcept;
std::shared_ptr<Device> open(int32_t ordinal);

}  // namespace symmetra::device::cuda
