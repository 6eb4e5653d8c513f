#include "cpp/device/host/queue.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "cpp/device/host/bell.hpp"
#include "cpp/device/host/event.hpp"
#include "cpp/device/host/graph.hpp"
#include "symmetra/error.hpp"

namespace symmetra::device::host {
namespace {

/// Runs one command on the worker.
struct Execute {
  Queue& queue;
  uint64_t position;
  Crew& crew;

  int32_t operator()(std::monostate) const noexcept { return 0; }
  int32_t operator()(const Copy& copy) const noexcept {
    std::memmove(copy.to, copy.from, copy.bytes);  // a call may accept operands that overlap
    return 0;
  }
  int32_t operator()(const Fill& fill) const noexcept {
    std::memset(fill.to, fill.value, fill.bytes);
    return 0;
  }
  int32_t operator()(const Store& store) const noexcept {
    std::atomic_ref<uint32_t>(*store.word).store(store.value, std::memory_order_release);
    ring();  // a peer may sleep until it has the word
    return 0;
  }
  int32_t operator()(const Record& record) const noexcept {
    record.marker->stamp(&queue, position);
    return 0;
  }
  int32_t operator()(const Wait& wait) const noexcept {
    if (wait.point.queue) wait.point.queue->wait_for(wait.point.position);
    return 0;
  }
  int32_t operator()(const Kernel& kernel) const noexcept { return crew.run(kernel); }
  int32_t operator()(const Keep&) const noexcept { return 0; }
};

}  // namespace

const char* describe(int32_t code) noexcept {
  switch (code) {
    case 0:
      return "success";
    case EINVAL:
      return "no such kernel, a launch shape outside the limits, a null pointer, or an object of another kind of device";
    case ENOMEM:
      return "out of memory";
    case EAGAIN:
      return "the system refused to start the threads of a launch";
    case ECANCELED:
      return "the owner of the borrowed stream has destroyed the stream";
    case EOPNOTSUPP:
      return "the event was recorded in a capture of another stream that has not ended; the host device captures one stream";
    default:
      return "not a code of the host device";
  }
}

int32_t Queue::push(std::span<const Command> commands, const Keep& keep) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_ != 0) return failure_;
  // The owner of this borrowed stream is gone, so no thread would run the commands.
  if (stopping_) return ECANCELED;
  try {
    if (recording_) {
      recording_->append(commands, keep);
      return 0;
    }
    ring_.reserve(commands.size() + 1);
  } catch (...) {
    if (recording_) recording_->incomplete = true;
    return ENOMEM;
  }
  for (const Command& command : commands) place(command);
  if (keep.program) place(keep);
  work_.notify_one();
  return 0;
}

void Queue::place(Command command) noexcept {
  ++enqueued_;
  if (const auto* record = std::get_if<Record>(&command)) record->marker->set(Point{shared_from_this(), enqueued_});
  if (auto* wait = std::get_if<Wait>(&command)) wait->point = wait->marker->last();
  ring_.push(std::move(command));
}

uint64_t Queue::enqueued() const noexcept {
  const std::lock_guard lock(mutex_);
  return enqueued_;
}

bool Queue::reached(uint64_t position) const noexcept {
  const std::lock_guard lock(mutex_);
  return done_ >= position;
}

void Queue::wait_for(uint64_t position) const noexcept {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done_ >= position; });
}

void Queue::throw_if_failed(const char* doing) const {
  const std::lock_guard lock(mutex_);
  if (failure_ == 0) return;
  throw Error(ErrorKind::kDevice, std::string(doing) + ": a command of the stream could not be run: " + describe(failure_), failure_);
}

std::shared_ptr<Recording> Queue::recording() const noexcept {
  const std::lock_guard lock(mutex_);
  return recording_;
}

std::shared_ptr<Recording> Queue::begin_recording() {
  auto recording = std::make_shared<Recording>();
  const std::lock_guard lock(mutex_);
  if (recording_) throw Error(ErrorKind::kInvalidArgument, "begin_capture: the stream is being captured already");
  recording_ = recording;
  return recording;
}

void Queue::end_recording() noexcept {
  std::shared_ptr<Recording> ended;  // destroyed without the lock: it may hold the last of a program
  const std::lock_guard lock(mutex_);
  ended.swap(recording_);
}

void Queue::serve() noexcept {
  Crew crew;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !ring_.empty(); });
    if (ring_.empty()) return;
    const uint64_t position = done_ + 1;
    int32_t code = 0;
    {
      const Command command = ring_.pop();
      lock.unlock();
      code = std::visit(Execute{*this, position, crew}, command);
    }  // the command's resources are released before it counts as done, and without the lock
    lock.lock();
    done_ = position;
    if (failure_ == 0) failure_ = code;
    progress_.notify_all();
  }
}

void Queue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
}

}  // namespace symmetra::device::host
