#pragma once

#include <memory>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/gpu/graph.hpp"

namespace symmetra::device::cuda {

/// Instantiates recorded work. Expects the context to be current.
std::unique_ptr<Graph> make_graph(const Context& context, cudaGraph_t recorded, std::unique_ptr<gpu::Kept> kept);
/// Makes a graph hold a value: see gpu/chain.hpp. Bodies of conditional nodes hold none.
void hold(const Context& context, cudaGraph_t graph, std::unique_ptr<gpu::Kept> kept);

}  // namespace symmetra::device::cuda
