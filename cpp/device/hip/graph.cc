#include "cpp/device/hip/graph.hpp"

#include <utility>

namespace symmetra::device::hip {
namespace {

/// Holds the keepalive itself, and waits for the device before releasing it: releases of ROCm differ in whether a graph
/// can own a user object, and for how long.
class ReadyGraph final : public Graph {
 public:
  ReadyGraph(const Context& context, hipGraph_t recorded, std::unique_ptr<gpu::Kept> kept)
      : kept_(std::move(kept)), exec_(context, recorded), drain_(context) {}
  int32_t launch(const Stream& stream) const noexcept override { return exec_.launch(stream); }

 private:
  std::unique_ptr<gpu::Kept> kept_;
  gpu::Executable<Context> exec_;
  Drain<Context> drain_;
};

}  // namespace

void hold(const Context&, hipGraph_t, std::unique_ptr<gpu::Kept>) {}

std::unique_ptr<Graph> make_graph(const Context& context, hipGraph_t recorded, std::unique_ptr<gpu::Kept> kept) {
  return std::make_unique<ReadyGraph>(context, recorded, std::move(kept));
}

}  // namespace symmetra::device::hip
