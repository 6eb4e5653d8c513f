// This library's kernels: kept as clang's registration brings them, loaded device by device.
#pragma once

#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// Loads the code object into the device. Throws kUnsupported where it holds nothing for the
/// device's architecture. Once a device.
void load_kernels(const Context& context);

}  // namespace symmetra::device::hip
