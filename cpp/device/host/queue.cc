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

/// Runs one command.
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
      return "the event was recorded in a capture that has not ended, and the stream is being captured by another one";
    default:
      return "not a code of the host device";
  }
}

int32_t Queue::push(std::span<const Command> commands, const Keep& keep) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_ != 0) return failure_;
  // The owner of this borrowed stream is gone, so no thread would run the commands.
  if (stopping_) return ECANCELED;
  if (recording_) return recording_->append(commands, keep);
  try {
    ring_.reserve(commands.size() + 1);
  } catch (...) {
    return ENOMEM;
  }
  for (const Command& command : commands) place(command);
  if (keep.program) place(keep);
  wake_worker();
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

bool Queue::reached(uint64_t position) noexcept {
  const std::lock_guard lock(mutex_);
  if (done_ >= position) return true;
  if (guest_ != std::thread::id() && !guest_runs_) end_guest();
  return false;
}

void Queue::wait_for(uint64_t position) noexcept {
  std::unique_lock lock(mutex_);
  if (done_ >= position) return;
  if (guest_ == std::this_thread::get_id() && !guest_runs_) {
    const Guest guest(numerics_);
    guest_runs_ = true;
    while (done_ < position) run_first(lock);
    guest_runs_ = false;
    if (stopping_ || !ring_.empty()) end_guest();
    return;
  }
  wake_worker();
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

int32_t Queue::join_recording(const std::shared_ptr<Recording>& recording) noexcept {
  const std::lock_guard lock(mutex_);
  if (recording_) return EOPNOTSUPP;
  try {
    recording->add_branch(shared_from_this());
  } catch (...) {
    return ENOMEM;
  }
  recording_ = recording;
  return 0;
}

void Queue::end_recording() noexcept {
  std::shared_ptr<Recording> ended;  // destroyed without the lock: it may hold the last of a program
  const std::lock_guard lock(mutex_);
  ended.swap(recording_);
}

void Queue::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return guest_ == std::thread::id() && (stopping_ || !ring_.empty()); });
    if (ring_.empty()) break;
    run_first(lock);
  }
  lock.unlock();
  crew_.reset();  // no guest comes after stop()
}

void Queue::run_first(std::unique_lock<std::mutex>& lock) noexcept {
  const uint64_t position = done_ + 1;
  int32_t code = 0;
  {
    const Command command = ring_.pop();
    lock.unlock();
    code = std::visit(Execute{*this, position, *crew_}, command);
  }  // the command's resources are released before it counts as done, and without the lock
  lock.lock();
  done_ = position;
  if (failure_ == 0) failure_ = code;
  progress_.notify_all();
}

void Queue::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (!guest_runs_) end_guest();
}

bool Queue::take_over() noexcept {
  const std::lock_guard lock(mutex_);
  if (guest_ != std::thread::id() || done_ != enqueued_ || recording_ || failure_ != 0 || stopping_) return false;
  guest_ = std::this_thread::get_id();
  return true;
}

void Queue::hand_back() noexcept {
  const std::lock_guard lock(mutex_);
  if (guest_ == std::this_thread::get_id()) end_guest();
}

void Queue::wake_worker() noexcept {
  if (guest_ == std::thread::id()) {
    work_.notify_one();
  } else if (guest_ != std::this_thread::get_id() && !guest_runs_) {
    end_guest();
  }
}

void Queue::end_guest() noexcept {
  guest_ = {};
  if (stopping_ || !ring_.empty()) work_.notify_one();
}

}  // namespace symmetra::device::host
