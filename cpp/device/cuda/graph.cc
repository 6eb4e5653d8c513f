#include "cpp/device/cuda/graph.hpp"

#include <utility>

namespace symmetra::device::cuda {
namespace {

/// A launch in flight outlives the object: the driver keeps the resources of the launch alive.
class ReadyGraph final : public Graph {
 public:
  ReadyGraph(const Context& context, cudaGraph_t recorded) : exec_(context, recorded) {}
  int32_t launch(const Stream& stream) const noexcept override { return exec_.launch(stream); }

 private:
  gpu::Executable<Context> exec_;
};

/// Passes `kept` to the graph. Executable graphs made from the graph, and their launches, hold it too.
cudaError_t attach(const Context& context, cudaGraph_t graph, std::unique_ptr<gpu::Kept> kept) {
  cudaUserObject_t object = nullptr;
  const auto destroy = [](void* data) { delete static_cast<gpu::Kept*>(data); };
  check(cudaUserObjectCreate(&object, kept.get(), destroy, 1, cudaUserObjectNoDestructorSync), context, {"UserObjectCreate"});
  kept.release();
  const cudaError_t code = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (code != cudaSuccess) gpu::settle(context.api, cudaUserObjectRelease(object, 1));
  return code;
}

}  // namespace

void hold(const Context& context, cudaGraph_t graph, std::unique_ptr<gpu::Kept> kept) {
  gpu::settle(context.api, attach(context, graph, std::move(kept)));
}

std::unique_ptr<Graph> make_graph(const Context& context, cudaGraph_t recorded, std::unique_ptr<gpu::Kept> kept) {
  check(attach(context, recorded, std::move(kept)), context, {"GraphRetainUserObject"});
  return std::make_unique<ReadyGraph>(context, recorded);
}

}  // namespace symmetra::device::cuda
