#include "symmetra/capture.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;

void Graph::register_pointers() const {
  call([&] { core::graph_register(live(core_)); });
}

void Graph::launch(const Stream& stream) const {
  call([&] { core::graph_launch(live(core_), live(stream.core_)); });
}

NativeCapture Stream::begin_capture() const {
  return NativeCapture(core::share(call([&] { return core::capture_begin(live(core_)); })));
}

NativeGraph NativeCapture::end() {
  return NativeGraph(core::share(call([&] { return core::capture_end(live(core_)); })));
}

void NativeGraph::launch(const Stream& stream) const {
  call([&] { core::graph_launch(live(core_), live(stream.core_)); });
}

}  // namespace symmetra

namespace symmetra::core {

struct QueueParts {
  static Queue of(const symmetra::Queue& queue) {
    if (queue.stream_ == nullptr && queue.capture_ == nullptr) throw_moved_from();
    return Queue{queue.stream_, queue.capture_};
  }
};

Queue queue_of(const symmetra::Queue& queue) { return QueueParts::of(queue); }

}  // namespace symmetra::core
