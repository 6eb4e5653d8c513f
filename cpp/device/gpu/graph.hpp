// Captured work.
//
// Backends differ in how a graph holds its objects. They provide by ADL
//   std::unique_ptr<device::Graph> make_graph(const Context&, Graph_t recorded, std::unique_ptr<Kept>)
// which expects the context to be current.
#pragma once

#include <memory>
#include <utility>

#include "cpp/device/gpu/kept.hpp"
#include "cpp/device/gpu/stream.hpp"

namespace symmetra::device::gpu {

/// The recorded work of a capture; may be empty.
template <typename Context>
class Recorded {
 public:
  explicit Recorded(const Context& context) : context_(context) {}
  ~Recorded() {
    if (graph_ != nullptr) settle(context_.api, context_.api.GraphDestroy(graph_));
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  /// Ends the capture of `stream`, even if it fails.
  auto end(typename Context::Api::Stream_t stream) { return context_.api.StreamEndCapture(stream, &graph_); }
  auto get() const { return graph_; }

 private:
  const Context& context_;
  typename Context::Api::Graph_t graph_ = nullptr;
};

/// Recorded work, ready to run. Its constructor expects the context to be current.
template <typename Context>
class Executable {
 public:
  Executable(const Context& context, typename Context::Api::Graph_t recorded) : context_(context) {
    check(context.instantiate(&exec_, recorded), context, {"GraphInstantiate"});
  }
  ~Executable() {
    const Cold cold(context_);
    settle(context_.api, context_.api.GraphExecDestroy(exec_));
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  int32_t launch(const device::Stream& stream) const noexcept {
    const auto* const target = here<Stream<Context>>(stream);
    if (target == nullptr) return Context::Api::ErrorInvalidResourceHandle;
    const Context& context = target->context();
    const typename Context::Current current(context);
    return settle(context.api, context.api.GraphLaunch(exec_, target->handle()));
  }

 private:
  const Context& context_;
  typename Context::Api::GraphExec_t exec_ = nullptr;
};

/// The thread that began a capture must end it, so the capture mode is thread-local.
template <typename Context>
class Captured final : public Capture {
 public:
  explicit Captured(const Stream<Context>& stream) : stream_(stream) {
    const Cold cold(context());
    check(context().api.StreamBeginCapture(stream_.handle(), Context::Api::StreamCaptureModeThreadLocal), context(),
          {"StreamBeginCapture"});
  }
  ~Captured() override {
    if (finished_) return;
    const Cold cold(context());
    Recorded dropped(context());
    settle(context().api, dropped.end(stream_.handle()));
  }

  std::unique_ptr<device::Graph> finish(Keepalive keepalive) override {
    auto kept = keep(keepalive);
    if (finished_) throw Error(ErrorKind::kInvalidArgument, "finish of a capture that was finished already");
    const Cold cold(context());
    finished_ = true;
    Recorded recorded(context());
    check(recorded.end(stream_.handle()), context(), {"StreamEndCapture"});
    return make_graph(context(), recorded.get(), std::move(kept));
  }

 private:
  const Context& context() const { return stream_.context(); }

  const Stream<Context>& stream_;
  bool finished_ = false;
};

template <typename Context>
std::unique_ptr<Capture> begin_capture(const Stream<Context>& stream) {
  return std::make_unique<Captured<Context>>(stream);
}

}  // namespace symmetra::device::gpu
