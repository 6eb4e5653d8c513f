// Captured work.
#pragma once

#include <memory>

#include "cpp/device/gpu/graph.hpp"
#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// Makes recorded work ready to run. Expects the context to be current.
std::unique_ptr<Graph> make_graph(const Context& context, hipGraph_t recorded, std::unique_ptr<gpu::Kept> kept);

}  // namespace symmetra::device::hip
