#include "cpp/device/host/event.hpp"

#include <utility>

#include "cpp/device/host/queue.hpp"

namespace symmetra::device::host {

void Marker::set(Point point) noexcept {
  const std::lock_guard lock(mutex_);
  std::swap(last_, point);  // the old point is destroyed without the lock
  reached_ = false;
}

void Marker::stamp(const Queue* queue, uint64_t position) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (last_.queue.get() != queue || last_.position != position) return;
  time_ = now;
  reached_ = true;
}

Point Marker::last() const noexcept {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::chrono::steady_clock::time_point Marker::time() const {
  const std::lock_guard lock(mutex_);
  if (!last_.queue) throw Error(ErrorKind::kInvalidArgument, "elapsed_us: an event was never recorded");
  if (!reached_) throw Error(ErrorKind::kInvalidArgument, "elapsed_us: an event is not done yet");
  return time_;
}

std::shared_ptr<Recording> Marker::captured() const noexcept {
  const std::lock_guard lock(mutex_);
  return captured_.lock();
}

void Marker::set_captured(const std::shared_ptr<Recording>& recording) noexcept {
  const std::lock_guard lock(mutex_);
  captured_ = recording;
}

bool Event::done() const {
  const Point last = marker_->last();
  if (!last.queue) return true;
  last.queue->throw_if_failed("Event::done");
  return last.queue->reached(last.position);
}

void Event::synchronize() const {
  const Point last = marker_->last();
  if (!last.queue) return;
  last.queue->wait_for(last.position);
  last.queue->throw_if_failed("Event::synchronize");
}

double Event::elapsed_us(const device::Event& start) const {
  const auto* from = dynamic_cast<const Event*>(&start);
  if (!from) throw Error(ErrorKind::kInvalidArgument, "elapsed_us: the start is not an event of a host device");
  return std::chrono::duration<double, std::micro>(marker_->time() - from->marker_->time()).count();
}

}  // namespace symmetra::device::host
