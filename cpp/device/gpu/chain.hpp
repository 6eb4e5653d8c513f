// Chains of operations in captures.
//
// Backends provide by ADL
//   void hold(const Context&, Graph_t, std::unique_ptr<Kept>)
// which makes a graph, and what is made from the graph, hold the value, or releases the value where the runtime does not let the graph
// hold values. It expects the context to be current.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpp/device/gpu/kept.hpp"
#include "cpp/device/gpu/stream.hpp"

namespace symmetra::device::gpu {

template <typename Context>
class Chained final : public Chain {
  using Api = typename Context::Api;
  using Node = typename Api::GraphNode_t;

 public:
  Chained(const Stream<Context>& stream, const device::Event* event, std::unique_ptr<Kept> kept) : context_(stream.context()) {
    const Cold cold(context_);
    const Recorder<Context> recorder = recorder_of(stream);
    if (event != nullptr) begin_with(*event, stream, recorder);
    hold(context_, recorder.graph, std::move(kept));
  }

  void follow(const device::Stream& stream) override {
    const Cold cold(context_);
    const auto& own = of(stream);
    const Recorder<Context> recorder = recorder_of(own);
    std::vector<Node> missing;
    for (const Node node : last_) {
      if (!recorder.has_tip(node)) missing.push_back(node);
    }
    if (missing.empty()) return;
    check(context_.add_tips(own.handle(), missing.data(), missing.size()), context_, {"StreamUpdateCaptureDependencies"});
  }

  void extend(const device::Stream& stream) override {
    const Cold cold(context_);
    const Recorder<Context> recorder = recorder_of(of(stream));
    std::vector<Node> last(recorder.tips, recorder.tips + recorder.count);
    if (event_ != nullptr) move_record(recorder.graph, last);
    last_ = std::move(last);
  }

 private:
  static const Stream<Context>& of(const device::Stream& stream) {
    const auto* const own = here<Stream<Context>>(stream);
    if (own == nullptr) throw Error(ErrorKind::kInvalidArgument, "a chain of another kind of device");
    return *own;
  }

  Recorder<Context> recorder_of(const Stream<Context>& stream) const {
    const Recorder<Context> recorder = stream.recorder();
    if (recorder.id == 0) throw Error(ErrorKind::kInvalidArgument, "a chain on a stream that is not being captured");
    return recorder;
  }

  void begin_with(const device::Event& event, const Stream<Context>& stream, const Recorder<Context>& recorder) {
    const auto* const point = here<Event<Context>>(event);
    if (point == nullptr) throw Error(ErrorKind::kInvalidArgument, "a chain with an event of another kind of device");
    Node wait = nullptr;
    const auto code = context_.api.GraphAddEventWaitNode(&wait, recorder.graph, recorder.tips, recorder.count, point->handle());
    if (code != Api::Success) {
      settle(context_.api, code);
      throw Error(ErrorKind::kUnsupported,
                  std::string("a wait for an event in a captured graph: ") + context_.api.GetErrorString(code) +
                      ". Bodies of conditional nodes and graphs that a device launches accept none: turn graph_mixing off",
                  code);
    }
    check(context_.set_tips(stream.handle(), &wait, 1), context_, {"StreamUpdateCaptureDependencies"});
    event_ = point->handle();
    last_ = {wait};
  }

  /// Moves the node that records the event after the nodes `last`: a node for each operation would cost time at each launch.
  void move_record(typename Api::Graph_t graph, const std::vector<Node>& last) {
    if (record_ == nullptr) {
      check(context_.api.GraphAddEventRecordNode(&record_, graph, last.data(), last.size(), event_), context_, {"GraphAddEventRecordNode"});
      return;
    }
    if (last == last_) return;
    const std::vector<Node> before(last_.size(), record_);
    check(context_.remove_edges(graph, last_.data(), before.data(), last_.size()), context_, {"GraphRemoveDependencies"});
    const std::vector<Node> after(last.size(), record_);
    check(context_.add_edges(graph, last.data(), after.data(), last.size()), context_, {"GraphAddDependencies"});
  }

  const Context& context_;
  typename Api::Event_t event_ = nullptr;  ///< null: launches keep no order with other work
  Node record_ = nullptr;
  std::vector<Node> last_;  ///< the nodes at the end of the last operation
};

template <typename Context>
std::unique_ptr<Chain> begin_chain(const Stream<Context>& stream, const device::Event* event, Keepalive keepalive) {
  auto kept = keep(keepalive);
  return std::make_unique<Chained<Context>>(stream, event, std::move(kept));
}

}  // namespace symmetra::device::gpu
