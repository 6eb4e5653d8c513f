// This library's kernels: registered by clang's code, loaded once for each device.
#pragma once

#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// Loads the code object into the device, once. Throws kUnsupported if it has no code for the device's architecture.
void load_kernels(const Context& context);

}  // namespace symmetra::device::hip
