// Captured work.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cpp/device/cuda/stream.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

/// `stream` must outlive the result.
std::unique_ptr<Capture> begin_capture(const Stream& stream);

}  // namespace symmetra::device::cuda
