#include "cpp/device/hip/graph.hpp"

#include <utility>

#include "cpp/device/hip/drain.hpp"
#include "cpp/device/hip/error.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

/// What a capture recorded; may be nothing.
class Recorded {
 public:
  explicit Recorded(const Context& context) : context_(context) {}
  ~Recorded() {
    if (graph_ != nullptr) settle(context_, context_.hip.hipGraphDestroy(graph_));
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  /// Ends the capture of `stream`, whether or not it succeeds.
  hipError_t end(hipStream_t stream) { return context_.hip.hipStreamEndCapture(stream, &graph_); }
  hipGraph_t get() const { return graph_; }

 private:
  const Context& context_;
  hipGraph_t graph_ = nullptr;
};

/// Recorded work, ready to run. Expects its context to be current when made.
class Executable {
 public:
  Executable(const Context& context, const Recorded& recorded) : context_(context) {
    check(context.hip.hipGraphInstantiate(&exec_, recorded.get(), nullptr, nullptr, 0), context, {"hipGraphInstantiate"});
  }
  ~Executable() {
    const Cold cold(context_);
    settle(context_, context_.hip.hipGraphExecDestroy(exec_));
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  hipGraphExec_t get() const { return exec_; }

 private:
  const Context& context_;
  hipGraphExec_t exec_ = nullptr;
};

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

/// Holds the keepalive itself and waits for the device before it lets go: releases of ROCm differ
/// in whether a graph can own an object of the user's, and in how long it does.
class Graph final : public device::Graph {
 public:
  Graph(const Context& context, const Recorded& recorded, std::unique_ptr<Kept> kept)
      : kept_(std::move(kept)), exec_(context, recorded), drain_(context) {}

  int32_t launch(const device::Stream& stream) const noexcept override {
    const auto* const target = here<Stream>(stream);
    if (target == nullptr) return hipErrorInvalidResourceHandle;
    const Context& context = target->context();
    const Current current(context);
    return settle(context, context.hip.hipGraphLaunch(exec_.get(), target->handle()));
  }

 private:
  std::unique_ptr<Kept> kept_;
  Executable exec_;
  Drain drain_;
};

/// The thread that began a capture must end it, so the mode is that of the thread.
class Capture final : public device::Capture {
 public:
  explicit Capture(const Stream& stream) : stream_(stream) {
    const Cold cold(context());
    check(context().hip.hipStreamBeginCapture(stream_.handle(), hipStreamCaptureModeThreadLocal), context(), {"hipStreamBeginCapture"});
  }
  ~Capture() override {
    if (finished_) return;
    const Cold cold(context());
    Recorded dropped(context());
    settle(context(), dropped.end(stream_.handle()));
  }

  std::unique_ptr<device::Graph> finish(Keepalive keepalive) override {
    auto kept = keep(keepalive);
    if (finished_) throw Error(ErrorKind::kInvalidArgument, "finish of a capture that was finished already");
    const Cold cold(context());
    finished_ = true;
    Recorded recorded(context());
    check(recorded.end(stream_.handle()), context(), {"hipStreamEndCapture"});
    return std::make_unique<Graph>(context(), recorded, std::move(kept));
  }

 private:
  const Context& context() const { return stream_.context(); }

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

}  // namespace symmetra::device::hip
