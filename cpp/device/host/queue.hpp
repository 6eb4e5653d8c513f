// The commands of a stream, and the number of finished commands. A worker serves the queue. A thread that waits for its own
// commands may serve them in place of the worker. The queue may outlive its stream, because events refer to its positions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "cpp/device/host/command.hpp"
#include "cpp/device/host/guest.hpp"
#include "cpp/device/host/launch.hpp"
#include "cpp/device/host/recording.hpp"
#include "cpp/device/host/ring.hpp"

namespace symmetra::device::host {

/// The text of a code from a hot function.
const char* describe(int32_t code) noexcept;

// Locks are taken in the order registry, program, queue, marker.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  /// Enqueues all commands, or records all while capturing; then enqueues `keep` if it holds a program. Returns 0,
  /// ENOMEM, ECANCELED after stop(), or the code of an earlier failure.
  int32_t push(std::span<const Command> commands, const Keep& keep = {}) noexcept;

  /// Position of the last command enqueued.
  uint64_t enqueued() const noexcept;
  /// Does not block. A guest that asks for a command that it has not run leaves the command to the worker.
  bool reached(uint64_t position) noexcept;
  /// A guest runs its commands here.
  void wait_for(uint64_t position) noexcept;
  /// Throws if a command has failed. `doing` names the call.
  void throw_if_failed(const char* doing) const;

  /// The capture in progress, or null.
  std::shared_ptr<Recording> recording() const noexcept;
  /// Throws if a capture is in progress.
  std::shared_ptr<Recording> begin_recording();
  /// Records later commands in the capture of another stream. Returns 0, EOPNOTSUPP if another capture is in progress, or ENOMEM.
  int32_t join_recording(const std::shared_ptr<Recording>& recording) noexcept;
  /// Later commands run again instead of being recorded.
  void end_recording() noexcept;

  /// The worker: runs commands until stop() was called and none is left.
  void serve() noexcept;
  void stop() noexcept;

  /// Makes the calling thread the guest, until hand_back(): commands that the guest enqueues do not wake the worker, and the
  /// guest runs them in wait_for(). Returns false if the queue has commands, a capture, a failure or a guest. If another thread
  /// enqueues a command or asks for the guest's commands before the guest runs them, the guest is a guest no longer, and the
  /// worker runs them. So no thread waits for a guest that waits for that thread.
  bool take_over() noexcept;
  void hand_back() noexcept;

 private:
  void place(Command command) noexcept;
  /// Runs the first command, without the lock. The caller is the worker and there is no guest, or the caller is the guest.
  void run_first(std::unique_lock<std::mutex>& lock) noexcept;
  /// Wakes the worker for the commands, unless the calling thread is the guest.
  void wake_worker() noexcept;
  void end_guest() noexcept;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  Ring ring_;
  /// The threads of kernels, for the worker and the guest; ends with the worker.
  std::optional<Crew> crew_{std::in_place};
  /// The guest. Without commands at its start, all commands are its own.
  std::thread::id guest_;
  /// Whether the guest runs commands. Then the commands of other threads wait until the guest's commands have ended.
  bool guest_runs_ = false;
  const Numerics numerics_;  ///< of the worker, which inherits them from the thread that makes the queue
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  int32_t failure_ = 0;
  bool stopping_ = false;
  std::shared_ptr<Recording> recording_;
};

}  // namespace symmetra::device::host
