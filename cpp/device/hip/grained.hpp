// Plain memory that peers may write while a kernel reads it, shared by legacy IPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpp/device/hip/context.hpp"
#include "cpp/device/hip/shared.hpp"

namespace symmetra::device::hip {

/// Smaller pieces may be parts of a larger allocation, and share its handle.
constexpr size_t kGrainedGranularity = size_t{2} << 20;

std::unique_ptr<Memory> allocate_grained(const Context& context, size_t bytes);
/// Imports memory of another process; the caller keeps `fd`. Throws kInvalidArgument if `fd` is not from export_fd.
std::unique_ptr<Memory> import_grained(const Context& context, int32_t fd, size_t bytes);

}  // namespace symmetra::device::hip
