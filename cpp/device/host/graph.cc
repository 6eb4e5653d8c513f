#include "cpp/device/host/graph.hpp"

#include <cerrno>
#include <utility>

#include "cpp/device/host/event.hpp"
#include "cpp/device/host/queue.hpp"
#include "cpp/device/host/stream.hpp"

namespace symmetra::device::host {

Kept::Kept(Kept&& other) noexcept : keepalive_(std::exchange(other.keepalive_, Keepalive{nullptr, nullptr})) {}

Kept::~Kept() {
  if (keepalive_.release) keepalive_.release(keepalive_.data);
}

// The lock orders launches from two threads: each launch waits, on its stream, for the previous launch.
int32_t Program::launch(Queue& queue) const noexcept {
  const std::lock_guard lock(mutex_);
  return queue.push(commands_, Keep{shared_from_this()});
}

int32_t Graph::launch(const device::Stream& stream) const noexcept {
  const auto* own = dynamic_cast<const Stream*>(&stream);
  return own ? program_->launch(*own->queue()) : EINVAL;
}

Capture::Capture(std::shared_ptr<Queue> queue) : queue_(std::move(queue)), recording_(queue_->begin_recording()) {}

Capture::~Capture() {
  if (recording_) queue_->end_recording();
}

std::unique_ptr<device::Graph> Capture::finish(Keepalive keepalive) {
  Kept kept(keepalive);
  if (!recording_) throw Error(ErrorKind::kInvalidArgument, "Capture::finish: the capture was finished already");
  queue_->end_recording();
  const std::shared_ptr<Recording> recording = std::move(recording_);
  if (recording->incomplete) throw Error(ErrorKind::kOutOfMemory, "Capture::finish: no memory was left to record a command", ENOMEM);
  // Launches of one graph never overlap, on any streams: its kernels share state.
  const auto launched = std::make_shared<Marker>();
  std::vector<Command> commands;
  commands.reserve(recording->commands.size() + 2);
  commands.emplace_back(Wait{launched, {}});
  for (Command& command : recording->commands) commands.push_back(std::move(command));
  commands.emplace_back(Record{launched});
  return std::make_unique<Graph>(std::make_shared<const Program>(std::move(kept), std::move(commands)));
}

}  // namespace symmetra::device::host
