#include "cpp/device/host/stream.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include "cpp/device/host/event.hpp"
#include "cpp/device/host/graph.hpp"
#include "cpp/device/host/thread.hpp"

namespace symmetra::device::host {

Stream::Membership::Membership(std::shared_ptr<Registry> registry, const std::shared_ptr<Queue>& queue)
    : registry_(std::move(registry)), key_(registry_->add_queue(queue)) {}

Stream::Membership::~Membership() { registry_->remove_queue(key_); }

Stream::Stream(std::shared_ptr<Registry> registry)
    : queue_(std::make_shared<Queue>()),
      membership_(std::in_place, std::move(registry), queue_),
      handle_(membership_->key()),
      worker_(start_thread("symmetra-stream", [queue = queue_.get()] { queue->serve(); })) {}

Stream::Stream(const Registry& registry, uint64_t handle) : queue_(registry.queue(handle)), handle_(handle) {}

Stream::~Stream() {
  if (!worker_.joinable()) return;
  queue_->stop();
  worker_.join();
}

void Stream::refuse_in_capture(const char* doing) const {
  if (capturing()) throw Error(ErrorKind::kInvalidArgument, std::string(doing) + ": the stream is being captured");
}

bool Stream::done() const {
  refuse_in_capture("Stream::done");
  queue_->throw_if_failed("Stream::done");
  return queue_->reached(queue_->enqueued());
}

void Stream::synchronize() const {
  refuse_in_capture("Stream::synchronize");
  queue_->wait_for(queue_->enqueued());
  queue_->throw_if_failed("Stream::synchronize");
}

int32_t Stream::push(const Command& command) const noexcept { return queue_->push({&command, 1}); }

int32_t Stream::copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept {
  if (bytes == 0) return 0;
  return to && from ? push(Copy{to, from, bytes}) : EINVAL;
}

int32_t Stream::fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept {
  if (bytes == 0) return 0;
  return to ? push(Fill{to, value, bytes}) : EINVAL;
}

int32_t Stream::store(uint32_t* word, uint32_t value) const noexcept { return word ? push(Store{word, value}) : EINVAL; }

int32_t Stream::record(const device::Event& event) const noexcept {
  const auto* own = dynamic_cast<const Event*>(&event);
  if (!own) return EINVAL;
  own->marker()->set_captured(queue_->recording());
  return push(Record{own->marker()});
}

int32_t Stream::wait(const device::Event& event) const noexcept {
  const auto* own = dynamic_cast<const Event*>(&event);
  if (!own) return EINVAL;
  const std::shared_ptr<Recording> captured = own->marker()->captured();
  // The stream becomes a branch of the capture.
  if (captured && captured != queue_->recording()) return queue_->join_recording(captured);
  return push(Wait{own->marker(), {}});
}

int32_t Stream::launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept {
  const kernels::host::Entry entry = kernels::host::kernel(kind, args, geometry);
  if (!entry) return EINVAL;
  if (const int32_t code = check_geometry(geometry); code != 0) return code;
  return push(Kernel(entry, geometry, args, kernels::host::args_bytes(kind)));
}

int32_t Stream::launch_host(const HostKernel& kernel, const kernels::Geometry& geometry) const noexcept {
  static_assert(kMostHostKernelBytes <= kernels::host::kMostArgsBytes);
  if (!kernel.entry || kernel.bytes > kMostHostKernelBytes) return EINVAL;
  if (const int32_t code = check_geometry(geometry); code != 0) return code;
  return push(Kernel(kernel.entry, geometry, kernel.args, kernel.bytes));
}

bool Stream::capturing() const { return queue_->recording() != nullptr; }

std::unique_ptr<device::Capture> Stream::begin_capture() const { return std::make_unique<Capture>(queue_); }

uint64_t Stream::capture_id() const {
  const auto recording = queue_->recording();
  return recording ? recording->id() : 0;
}

std::unique_ptr<device::Chain> Stream::begin_chain(const device::Event* event, Keepalive keepalive) const {
  return std::make_unique<Chain>(queue_, event, keepalive);
}

}  // namespace symmetra::device::host
