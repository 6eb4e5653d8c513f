#include "cpp/device/host/graph.hpp"

#include <cerrno>
#include <utility>

#include "cpp/device/host/event.hpp"
#include "cpp/device/host/queue.hpp"
#include "cpp/device/host/stream.hpp"

namespace symmetra::device::host {

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
  if (recording_) end();
}

std::shared_ptr<Recording> Capture::end() noexcept {
  queue_->end_recording();
  for (const auto& branch : recording_->take_branches()) branch->end_recording();
  return std::move(recording_);
}

std::unique_ptr<device::Graph> Capture::finish(Keepalive keepalive) {
  Kept kept(keepalive);
  if (!recording_) throw Error(ErrorKind::kInvalidArgument, "Capture::finish: the capture was finished already");
  Recorded recorded = end()->take();
  if (recorded.incomplete) throw Error(ErrorKind::kOutOfMemory, "Capture::finish: no memory was left to record a command", ENOMEM);
  // Launches of one graph never overlap, on any streams: its kernels share state.
  const auto launched = std::make_shared<Marker>();
  std::vector<Command> commands;
  commands.reserve(recorded.commands.size() + 2);
  commands.emplace_back(Wait{launched, {}});
  for (Command& command : recorded.commands) commands.push_back(std::move(command));
  commands.emplace_back(Record{launched});
  recorded.kept.push_back(std::move(kept));
  return std::make_unique<Graph>(std::make_shared<const Program>(std::move(recorded.kept), std::move(commands)));
}

Chain::Chain(const std::shared_ptr<Queue>& queue, const device::Event* event, Keepalive keepalive) {
  Kept kept(keepalive);
  const auto recording = queue->recording();
  if (!recording) throw Error(ErrorKind::kInvalidArgument, "begin_chain: the stream is not being captured");
  if (event != nullptr) {
    const auto* own = dynamic_cast<const Event*>(event);
    if (!own) throw Error(ErrorKind::kInvalidArgument, "begin_chain: the event is not an event of a host device");
    marker_ = own->marker();
    const Command wait = Wait{marker_, {}};
    recording->append({&wait, 1}, {});
  }
  recording->keep(std::move(kept));
  recording_ = recording;
}

// A launch runs all branches in the order of their calls.
void Chain::follow(const device::Stream&) {}

void Chain::extend(const device::Stream&) {
  const auto recording = recording_.lock();
  if (marker_ && recording) record_ = recording->move_record(marker_, record_);
}

}  // namespace symmetra::device::host
