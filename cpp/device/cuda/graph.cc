#include "cpp/device/cuda/graph.hpp"

#include <utility>

#include "cpp/device/cuda/error.hpp"

namespace symmetra::device::cuda {
namespace {

struct GraphDestroy {
  void operator()(cudaGraph_t graph) const noexcept { settle(cudaGraphDestroy(graph)); }
};
struct ExecDestroy {
  void operator()(cudaGraphExec_t exec) const noexcept { settle(cudaGraphExecDestroy(exec)); }
};
using Recorded = std::unique_ptr<CUgraph_st, GraphDestroy>;
using Executable = std::unique_ptr<CUgraphExec_st, ExecDestroy>;

/// Releases a keepalive at the end of its own life.
class Kept {
 public:
  explicit Kept(Keepalive keepalive) : keepalive_(keepalive) {}
  ~Kept() { keepalive_.release(keepalive_.data); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Keepalive keepalive_;
};

class Graph final : public device::Graph {
 public:
  Graph(const Context& context, Executable exec) : context_(context), exec_(std::move(exec)) {}
  /// A launch in flight goes on: the driver keeps what it needs.
  ~Graph() override {
    const Cold cold(context_);
    exec_.reset();
  }

  int32_t launch(const device::Stream& stream) const noexcept override {
    const auto* const target = here<Stream>(stream);
    if (target == nullptr) return cudaErrorInvalidResourceHandle;
    const Current current(target->context());
    return settle(cudaGraphLaunch(exec_.get(), target->handle()));
  }

 private:
  const Context& context_;
  Executable exec_;
};

/// Hands `kept` to the graph. What is instantiated from the graph, and each launch of that,
/// then holds it too.
void attach(const Context& context, cudaGraph_t graph, std::unique_ptr<Kept> kept) {
  cudaUserObject_t object = nullptr;
  const auto destroy = [](void* data) { delete static_cast<Kept*>(data); };
  check(cudaUserObjectCreate(&object, kept.get(), destroy, 1, cudaUserObjectNoDestructorSync), context, {"cudaUserObjectCreate"});
  kept.release();
  const cudaError_t code = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (code != cudaSuccess) settle(cudaUserObjectRelease(object, 1));
  check(code, context, {"cudaGraphRetainUserObject"});
}

/// The thread that began a capture must end it, so the mode is that of the thread.
class Capture final : public device::Capture {
 public:
  explicit Capture(const Stream& stream) : stream_(stream) {
    const Cold cold(context());
    check(cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal), context(), {"cudaStreamBeginCapture"});
  }
  ~Capture() override {
    if (finished_) return;
    const Cold cold(context());
    cudaGraph_t graph = nullptr;
    settle(end(&graph));
    const Recorded dropped(graph);
  }

  std::unique_ptr<device::Graph> finish(Keepalive keepalive) override {
    auto kept = keep(keepalive);
    if (finished_) throw Error(ErrorKind::kInvalidArgument, "finish of a capture that was finished already");
    const Cold cold(context());
    cudaGraph_t graph = nullptr;
    const cudaError_t code = end(&graph);
    const Recorded recorded(graph);
    check(code, context(), {"cudaStreamEndCapture"});
    attach(context(), recorded.get(), std::move(kept));
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, recorded.get(), 0), context(), {"cudaGraphInstantiate"});
    return std::make_unique<Graph>(context(), Executable(exec));
  }

 private:
  const Context& context() const { return stream_.context(); }

  cudaError_t end(cudaGraph_t* graph) {
    finished_ = true;
    return cudaStreamEndCapture(stream_.handle(), graph);
  }

  static std::unique_ptr<Kept> keep(Keepalive keepalive) {
    try {
      return std::make_unique<Kept>(keepalive);
    } catch (...) {
      keepalive.release(keepalive.data);
      throw;
    }
  }

  const Stream& stream_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<device::Capture> begin_capture(const Stream& stream) { return std::make_unique<Capture>(stream); }

}  // namespace symmetra::device::cuda
