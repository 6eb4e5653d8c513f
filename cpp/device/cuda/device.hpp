// CUDA devices, without CUDA types, so that callers need no CUDA headers.
#pragma once

#include <cstdint>
#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

/// 0 without a driver.
uint32_t count() noexcept;
std::shared_ptr<Device> open(int32_t ordinal);

}  // namespace symmetra::device::cuda
