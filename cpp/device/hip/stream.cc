#include "cpp/device/hip/stream.hpp"

#include <string>

#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/graph.hpp"

namespace symmetra::device::hip {
namespace {

hipEvent_t new_event(const Context& context) {
  const Cold cold(context);
  hipEvent_t event = nullptr;
  check(context.hip.hipEventCreateWithFlags(&event, hipEventDefault), context, {"hipEventCreateWithFlags"});
  return event;
}

hipStream_t new_stream(const Context& context, bool urgent) {
  const Cold cold(context);
  int least = 0, greatest = 0;
  check(context.hip.hipDeviceGetStreamPriorityRange(&least, &greatest), context, {"hipDeviceGetStreamPriorityRange"});
  hipStream_t stream = nullptr;
  // 0 is what a stream has that is made without; the range may reach to either side of it.
  const int priority = urgent ? greatest : 0;
  check(context.hip.hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, priority), context, {"hipStreamCreateWithPriority"});
  return stream;
}

/// The stream that every blocking stream waits for. It cannot be captured, and to ask
/// whether it is fails while a blocking stream is.
bool is_legacy(hipStream_t stream) { return stream == nullptr || stream == legacy_stream(); }

/// Default streams belong to whichever device is current.
bool is_default(hipStream_t stream) { return is_legacy(stream) || stream == hipStreamPerThread; }

/// The answer of a query, which is an error code also when nothing is wrong.
bool answer(hipError_t code, const Context& context, Call call) {
  if (code == hipErrorNotReady) {
    static_cast<void>(context.hip.hipGetLastError());
    return false;
  }
  check(code, context, call);
  return true;
}

}  // namespace

Event::Event(const Context& context) : context_(context), event_(new_event(context)) {}

Event::~Event() {
  const Cold cold(context_);
  settle(context_, context_.hip.hipEventDestroy(event_));
}

bool Event::done() const {
  const Cold cold(context_);
  return answer(context_.hip.hipEventQuery(handle()), context_, {"hipEventQuery"});
}

void Event::synchronize() const {
  const Cold cold(context_);
  check(context_.hip.hipEventSynchronize(handle()), context_, {"hipEventSynchronize"});
}

double Event::elapsed_us(const device::Event& start) const {
  const auto* const from = here<Event>(start);
  if (from == nullptr) throw Error(ErrorKind::kInvalidArgument, "elapsed_us from an event of another kind of device");
  const Cold cold(context_);
  float elapsed_ms = 0;
  check(context_.hip.hipEventElapsedTime(&elapsed_ms, from->handle(), handle()), context_, {"hipEventElapsedTime"});
  return double{elapsed_ms} * 1000.0;
}

Stream::Stream(const Context& context, bool urgent) : context_(context), handle_(new_stream(context, urgent)), owned_(true) {}

Stream::Stream(const Context& context, uint64_t raw) : context_(context), handle_(reinterpret_cast<hipStream_t>(raw)), owned_(false) {
  // To ask a stream that is being captured for its device invalidates the capture.
  if (is_default(handle_) || capturing()) return;
  const Cold cold(context_);
  const int ordinal = context_.hip.hipGetStreamDeviceId(handle_);
  if (ordinal != context_.ordinal) {
    throw Error(ErrorKind::kInvalidArgument,
                "a stream of device " + std::to_string(ordinal) + ", but it must be of device " + std::to_string(context_.ordinal));
  }
}

Stream::~Stream() {
  if (!owned_) return;
  const Cold cold(context_);
  settle(context_, context_.hip.hipStreamDestroy(handle_));
}

bool Stream::done() const {
  const Cold cold(context_);
  return answer(context_.hip.hipStreamQuery(handle_), context_, {"hipStreamQuery"});
}

void Stream::synchronize() const {
  const Cold cold(context_);
  check(context_.hip.hipStreamSynchronize(handle_), context_, {"hipStreamSynchronize"});
}

int32_t Stream::copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept {
  const Current current(context_);
  return settle(context_, context_.hip.hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, handle_));
}

int32_t Stream::fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept {
  const Current current(context_);
  return settle(context_, context_.hip.hipMemsetAsync(to, value, bytes, handle_));
}

int32_t Stream::record(const device::Event& event) const noexcept {
  const auto* const point = here<Event>(event);
  if (point == nullptr) return hipErrorInvalidResourceHandle;
  const Current current(context_);
  return settle(context_, context_.hip.hipEventRecord(point->handle(), handle_));
}

int32_t Stream::wait(const device::Event& event) const noexcept {
  const auto* const point = here<Event>(event);
  if (point == nullptr) return hipErrorInvalidResourceHandle;
  const Current current(context_);
  return settle(context_, context_.hip.hipStreamWaitEvent(handle_, point->handle(), 0));
}

bool Stream::capturing() const {
  if (is_legacy(handle_)) return false;
  const Cold cold(context_);
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  check(context_.hip.hipStreamIsCapturing(handle_, &status), context_, {"hipStreamIsCapturing"});
  return status != hipStreamCaptureStatusNone;
}

std::unique_ptr<Capture> Stream::begin_capture() const {
  if (is_legacy(handle_)) throw Error(ErrorKind::kUnsupported, "capture of the legacy default stream, which the runtime does not allow");
  if (capturing()) throw Error(ErrorKind::kInvalidArgument, "begin_capture of a stream that is being captured already");
  return hip::begin_capture(*this);
}

}  // namespace symmetra::device::hip
