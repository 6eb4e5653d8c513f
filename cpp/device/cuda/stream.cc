#include "cpp/device/cuda/stream.hpp"

#include <string>

#include "cpp/device/cuda/error.hpp"
#include "cpp/device/cuda/graph.hpp"

namespace symmetra::device::cuda {
namespace {

cudaEvent_t new_event(const Context& context) {
  const Cold cold(context);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDefault), context, {"cudaEventCreateWithFlags"});
  return event;
}

cudaStream_t new_stream(const Context& context, bool urgent) {
  const Cold cold(context);
  int usual = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&usual, &greatest), context, {"cudaDeviceGetStreamPriorityRange"});
  cudaStream_t stream = nullptr;
  const int priority = urgent ? greatest : usual;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), context, {"cudaStreamCreateWithPriority"});
  return stream;
}

/// The stream that every blocking stream waits for. It cannot be captured, and to ask
/// whether it is fails while a blocking stream is.
bool is_legacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

/// Default streams belong to whichever device is current.
bool is_default(cudaStream_t stream) { return is_legacy(stream) || stream == cudaStreamPerThread; }

/// The answer of a query, which is an error code also when nothing is wrong.
bool answer(cudaError_t code, const Context& context, Call call) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(code, context, call);
  return true;
}

}  // namespace

void EventDestroy::operator()(cudaEvent_t event) const noexcept { settle(cudaEventDestroy(event)); }

void StreamDestroy::operator()(cudaStream_t stream) const noexcept { settle(cudaStreamDestroy(stream)); }

Event::Event(const Context& context) : context_(context), event_(new_event(context)) {}

Event::~Event() {
  const Cold cold(context_);
  event_.reset();
}

bool Event::done() const {
  const Cold cold(context_);
  return answer(cudaEventQuery(handle()), context_, {"cudaEventQuery"});
}

void Event::synchronize() const {
  const Cold cold(context_);
  check(cudaEventSynchronize(handle()), context_, {"cudaEventSynchronize"});
}

double Event::elapsed_us(const device::Event& start) const {
  const auto* const from = here<Event>(start);
  if (from == nullptr) throw Error(ErrorKind::kInvalidArgument, "elapsed_us from an event of another kind of device");
  const Cold cold(context_);
  float elapsed_ms = 0;
  check(cudaEventElapsedTime(&elapsed_ms, from->handle(), handle()), context_, {"cudaEventElapsedTime"});
  return double{elapsed_ms} * 1000.0;
}

Stream::Stream(const Context& context, bool urgent) : context_(context), owned_(new_stream(context, urgent)), handle_(owned_.get()) {}

Stream::Stream(const Context& context, uint64_t raw) : context_(context), handle_(reinterpret_cast<cudaStream_t>(raw)) {
  // To ask a stream that is being captured for its device invalidates the capture.
  if (is_default(handle_) || capturing()) return;
  const Cold cold(context_);
  int ordinal = -1;
  check(cudaStreamGetDevice(handle_, &ordinal), context_, {"cudaStreamGetDevice"});
  if (ordinal != context_.ordinal) {
    throw Error(ErrorKind::kInvalidArgument,
                "a stream of device " + std::to_string(ordinal) + ", but it must be of device " + std::to_string(context_.ordinal));
  }
}

Stream::~Stream() {
  const Cold cold(context_);
  owned_.reset();
}

bool Stream::done() const {
  const Cold cold(context_);
  return answer(cudaStreamQuery(handle_), context_, {"cudaStreamQuery"});
}

void Stream::synchronize() const {
  const Cold cold(context_);
  check(cudaStreamSynchronize(handle_), context_, {"cudaStreamSynchronize"});
}

int32_t Stream::copy(uint8_t* to, const uint8_t* from, size_t bytes) const noexcept {
  const Current current(context_);
  return settle(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_));
}

int32_t Stream::fill(uint8_t* to, uint8_t value, size_t bytes) const noexcept {
  const Current current(context_);
  return settle(cudaMemsetAsync(to, value, bytes, handle_));
}

int32_t Stream::record(const device::Event& event) const noexcept {
  const auto* const point = here<Event>(event);
  if (point == nullptr) return cudaErrorInvalidResourceHandle;
  const Current current(context_);
  return settle(cudaEventRecord(point->handle(), handle_));
}

int32_t Stream::wait(const device::Event& event) const noexcept {
  const auto* const point = here<Event>(event);
  if (point == nullptr) return cudaErrorInvalidResourceHandle;
  const Current current(context_);
  return settle(cudaStreamWaitEvent(handle_, point->handle(), cudaEventWaitDefault));
}

bool Stream::capturing() const {
  if (is_legacy(handle_)) return false;
  const Cold cold(context_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(handle_, &status), context_, {"cudaStreamIsCapturing"});
  return status != cudaStreamCaptureStatusNone;
}

std::unique_ptr<Capture> Stream::begin_capture() const {
  if (is_legacy(handle_)) throw Error(ErrorKind::kUnsupported, "capture of the legacy default stream, which the runtime does not allow");
  if (capturing()) throw Error(ErrorKind::kInvalidArgument, "begin_capture of a stream that is being captured already");
  return cuda::begin_capture(*this);
}

}  // namespace symmetra::device::cuda
