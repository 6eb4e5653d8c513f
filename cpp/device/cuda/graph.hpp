// Captured work.
#pragma once

#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/gpu/graph.hpp"

namespace symmetra::device::cuda {

/// Makes recorded work ready to run. Expects the context to be current.
std::unique_ptr<Graph> make_graph(const Context& context, cudaGraph_t recorded, std::unique_ptr<gpu::Kept> kept);

}  // namespace symmetra::device::cuda
