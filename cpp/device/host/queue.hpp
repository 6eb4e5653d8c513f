// The commands of a stream, and the number of finished commands. A worker serves the queue. The queue may outlive its
// stream, because events refer to its positions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "cpp/device/host/command.hpp"
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
  bool reached(uint64_t position) const noexcept;
  void wait_for(uint64_t position) const noexcept;
  /// Throws if a command has failed. `doing` names the call.
  void throw_if_failed(const char* doing) const;

  /// The capture in progress, or null.
  std::shared_ptr<Recording> recording() const noexcept;
  /// Throws if a capture is in progress.
  std::shared_ptr<Recording> begin_recording();
  /// Later commands run again instead of being recorded.
  void end_recording() noexcept;

  /// The worker: runs commands until stop() was called and none is left.
  void serve() noexcept;
  void stop() noexcept;

 private:
  void place(Command command) noexcept;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  mutable std::condition_variable progress_;
  Ring ring_;
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  int32_t failure_ = 0;
  bool stopping_ = false;
  std::shared_ptr<Recording> recording_;
};

}  // namespace symmetra::device::host
