// Streams and events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>

#include "cpp/device/device.hpp"
#include "cpp/device/gpu/error.hpp"

namespace symmetra::device::gpu {

/// The derived object of an interface; nullptr for another kind of device.
template <typename Here, typename Base>
const Here* here(const Base& object) noexcept {
  return typeid(object) == typeid(Here) ? static_cast<const Here*>(&object) : nullptr;
}

template <typename Context>
class Event final : public device::Event {
  using Event_t = typename Context::Api::Event_t;

 public:
  Event(const Context& context, bool timed);
  ~Event() override;
  bool done() const override;
  void synchronize() const override;
  double elapsed_us(const device::Event& start) const override;
  Event_t handle() const noexcept { return event_; }

 private:
  const Context& context_;
  Event_t event_;
};

/// The capture that records a stream.
template <typename Context>
struct Recorder {
  uint64_t id = 0;  ///< unique in the process; 0: no capture records the stream
  typename Context::Api::Graph_t graph = nullptr;
  const typename Context::Api::GraphNode_t* tips = nullptr;  ///< the nodes for which the next work of the stream waits
  size_t count = 0;

  bool has_tip(typename Context::Api::GraphNode_t node) const { return std::find(tips, tips + count, node) != tips + count; }
};

template <typename Context>
class Stream;

/// `stream` must outlive the result. See graph.hpp.
template <typename Context>
std::unique_ptr<Capture> begin_capture(const Stream<Context>& stream);
/// See chain.hpp.
template <typename Context>
std::unique_ptr<Chain> begin_chain(const Stream<Context>& stream, const device::Event* event, Keepalive keepalive);

template <typename Context>
class Stream final : public device::Stream {
  using Api = typename Context::Api;
  using Stream_t = typename Api::Stream_t;

 public:
  /// A new stream, which does not wait for the legacy default stream. `urgent`: of the highest priority.
  Stream(const Context& context, bool urgent);
  /// A caller's stream. Throws if it belongs to another device, unless it is being captured.
  Stream(const Context& context, uint64_t raw);
  ~Stream() override;

  uint64_t raw() const noexcept override { return reinterpret_cast<uint64_t>(handle_); }
  uint64_t id() const noexcept override;
  bool done() const override;
  void synchronize() const override;
  int32_t copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept override;
  int32_t fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept override;
  int32_t store(uint32_t* word, uint32_t value) const noexcept override;
  int32_t record(const device::Event& event) const noexcept override;
  int32_t wait(const device::Event& event) const noexcept override;
  int32_t launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept override;
  bool capturing() const override;
  std::unique_ptr<Capture> begin_capture() const override;
  uint64_t capture_id() const override { return recorder().id; }
  std::unique_ptr<Chain> begin_chain(const device::Event* event, Keepalive keepalive) const override {
    return gpu::begin_chain(*this, event, keepalive);
  }
  Recorder<Context> recorder() const;

  const Context& context() const noexcept { return context_; }
  Stream_t handle() const noexcept { return handle_; }

 private:
  const Context& context_;
  Stream_t handle_;
  bool owned_;  ///< false for a borrowed stream
};

template <typename Context>
typename Context::Api::Event_t new_event(const Context& context, bool timed) {
  const Cold cold(context);
  typename Context::Api::Event_t event = nullptr;
  const unsigned int flags = timed ? Context::Api::EventDefault : Context::Api::EventDisableTiming;
  check(context.api.EventCreateWithFlags(&event, flags), context, {"EventCreateWithFlags"});
  return event;
}

template <typename Context>
typename Context::Api::Stream_t new_stream(const Context& context, bool urgent) {
  const Cold cold(context);
  int least = 0, greatest = 0;
  check(context.api.DeviceGetStreamPriorityRange(&least, &greatest), context, {"DeviceGetStreamPriorityRange"});
  typename Context::Api::Stream_t stream = nullptr;
  const int priority = urgent ? greatest : Context::usual_priority(least);
  check(context.api.StreamCreateWithPriority(&stream, Context::Api::StreamNonBlocking, priority), context, {"StreamCreateWithPriority"});
  return stream;
}

/// The legacy default stream, for which every blocking stream waits. It cannot be captured, and the query whether it is
/// captured fails while a blocking stream is captured.
template <typename Context>
bool is_legacy(typename Context::Api::Stream_t stream) {
  return stream == nullptr || stream == Context::legacy();
}

/// A default stream belongs to the current device.
template <typename Context>
bool is_default(typename Context::Api::Stream_t stream) {
  return is_legacy<Context>(stream) || stream == Context::per_thread();
}

/// The result of a query, which is an error code even without an error.
template <typename Context>
bool answer(typename Context::Api::Error_t code, const Context& context, Call call) {
  if (code == Context::Api::ErrorNotReady) {
    static_cast<void>(context.api.GetLastError());
    return false;
  }
  check(code, context, call);
  return true;
}

template <typename Context>
Event<Context>::Event(const Context& context, bool timed) : context_(context), event_(new_event(context, timed)) {}

template <typename Context>
Event<Context>::~Event() {
  const Cold cold(context_);
  settle(context_.api, context_.api.EventDestroy(event_));
}

template <typename Context>
bool Event<Context>::done() const {
  const Cold cold(context_);
  return answer(context_.api.EventQuery(handle()), context_, {"EventQuery"});
}

template <typename Context>
void Event<Context>::synchronize() const {
  const Cold cold(context_);
  check(context_.api.EventSynchronize(handle()), context_, {"EventSynchronize"});
}

template <typename Context>
double Event<Context>::elapsed_us(const device::Event& start) const {
  const auto* const from = here<Event<Context>>(start);
  if (from == nullptr) throw Error(ErrorKind::kInvalidArgument, "elapsed_us from an event of another kind of device");
  const Cold cold(context_);
  float elapsed_ms = 0;
  check(context_.api.EventElapsedTime(&elapsed_ms, from->handle(), handle()), context_, {"EventElapsedTime"});
  return double{elapsed_ms} * 1000.0;
}

template <typename Context>
Stream<Context>::Stream(const Context& context, bool urgent) : context_(context), handle_(new_stream(context, urgent)), owned_(true) {}

template <typename Context>
Stream<Context>::Stream(const Context& context, uint64_t raw) : context_(context), handle_(reinterpret_cast<Stream_t>(raw)), owned_(false) {
  // Querying the device of a captured stream invalidates the capture.
  if (is_default<Context>(handle_) || capturing()) return;
  const Cold cold(context_);
  const int32_t ordinal = context_.device_of(handle_);
  if (ordinal != context_.ordinal) {
    throw Error(ErrorKind::kInvalidArgument,
                "a stream of device " + std::to_string(ordinal) + ", but it must be of device " + std::to_string(context_.ordinal));
  }
}

template <typename Context>
Stream<Context>::~Stream() {
  if (!owned_) return;
  const Cold cold(context_);
  settle(context_.api, context_.api.StreamDestroy(handle_));
}

template <typename Context>
bool Stream<Context>::done() const {
  const Cold cold(context_);
  return answer(context_.api.StreamQuery(handle_), context_, {"StreamQuery"});
}

template <typename Context>
void Stream<Context>::synchronize() const {
  const Cold cold(context_);
  check(context_.api.StreamSynchronize(handle_), context_, {"StreamSynchronize"});
}

template <typename Context>
int32_t Stream<Context>::copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept {
  const typename Context::Current current(context_);
  return settle(context_.api, context_.api.MemcpyAsync(to, from, bytes, Api::MemcpyDefault, handle_));
}

template <typename Context>
int32_t Stream<Context>::fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept {
  const typename Context::Current current(context_);
  return settle(context_.api, context_.api.MemsetAsync(to, value, bytes, handle_));
}

template <typename Context>
int32_t Stream<Context>::store(uint32_t* word, uint32_t value) const noexcept {
  const typename Context::Current current(context_);
  return settle(context_.api, context_.store(handle_, word, value));
}

template <typename Context>
int32_t Stream<Context>::record(const device::Event& event) const noexcept {
  const auto* const point = here<Event<Context>>(event);
  if (point == nullptr) return Api::ErrorInvalidResourceHandle;
  const typename Context::Current current(context_);
  return settle(context_.api, context_.api.EventRecord(point->handle(), handle_));
}

template <typename Context>
int32_t Stream<Context>::wait(const device::Event& event) const noexcept {
  const auto* const point = here<Event<Context>>(event);
  if (point == nullptr) return Api::ErrorInvalidResourceHandle;
  const typename Context::Current current(context_);
  return settle(context_.api, context_.api.StreamWaitEvent(handle_, point->handle(), 0));
}

template <typename Context>
int32_t Stream<Context>::launch(kernels::Kind kind, const uint8_t* args, const kernels::Geometry& geometry) const noexcept {
  const typename Context::Current current(context_);
  return settle(context_.api, context_.launch(handle_, kind, args, geometry));
}

template <typename Context>
uint64_t Stream<Context>::id() const noexcept {
  const typename Context::Current current(context_);
  return context_.stream_id(handle_);
}

// On the path of calls: the queries need no other capture mode.
template <typename Context>
Recorder<Context> Stream<Context>::recorder() const {
  Recorder<Context> recorder;
  if (is_legacy<Context>(handle_)) return recorder;
  const typename Context::Current current(context_);
  check(context_.recorder(handle_, &recorder), context_, {"StreamGetCaptureInfo"});
  return recorder;
}

template <typename Context>
bool Stream<Context>::capturing() const {
  if (is_legacy<Context>(handle_)) return false;
  const Cold cold(context_);
  typename Api::StreamCaptureStatus status = Api::StreamCaptureStatusNone;
  check(context_.api.StreamIsCapturing(handle_, &status), context_, {"StreamIsCapturing"});
  return status != Api::StreamCaptureStatusNone;
}

template <typename Context>
std::unique_ptr<Capture> Stream<Context>::begin_capture() const {
  if (is_legacy<Context>(handle_))
    throw Error(ErrorKind::kUnsupported, "capture of the legacy default stream, which the runtime does not allow");
  if (capturing()) throw Error(ErrorKind::kInvalidArgument, "begin_capture of a stream that is being captured already");
  return gpu::begin_capture(*this);
}

}  // namespace symmetra::device::gpu
