#pragma once

#include <memory>

#include "cpp/device/gpu/graph.hpp"
#include "cpp/device/hip/context.hpp"

namespace symmetra::device::hip {

/// Instantiates recorded work. Expects the context to be current.
std::unique_ptr<Graph> make_graph(const Context& context, hipGraph_t recorded, std::unique_ptr<gpu::Kept> kept);
/// Releases `kept`: releases of ROCm differ in whether a graph can own a user object, and for how long.
void hold(const Context& context, hipGraph_t graph, std::unique_ptr<gpu::Kept> kept);

}  // namespace symmetra::device::hip
