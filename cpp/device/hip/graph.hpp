// Captured work.
#pragma once

#include <memory>

#include "cpp/device/device.hpp"
#include "cpp/device/hip/stream.hpp"

namespace symmetra::device::hip {

/// `stream` must outlive the result.
std::unique_ptr<Capture> begin_capture(const Stream& stream);

}  // namespace symmetra::device::hip
