// A capture in progress: the commands of one stream, and of the streams that joined the capture.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"

namespace symmetra::device::host {

/// Owns a Keepalive, and releases it once.
class Kept {
 public:
  explicit Kept(Keepalive keepalive) noexcept : keepalive_(keepalive) {}
  Kept(Kept&& other) noexcept;
  ~Kept();
  Kept& operator=(Kept&&) = delete;

 private:
  Keepalive keepalive_;
};

/// The contents of a graph.
struct Recorded {
  std::vector<Command> commands;
  std::vector<Kept> kept;
  bool incomplete = false;  ///< a command could not be recorded: no graph is created
};

/// The commands in the order of their calls: one order that all branches of the capture allow. A launch runs them in this order.
class Recording {
 public:
  Recording();

  /// Unique among all captures of the process; never 0.
  uint64_t id() const noexcept { return id_; }
  /// Returns 0 or ENOMEM.
  int32_t append(std::span<const Command> commands, const Keep& keep) noexcept;
  /// Records `marker` after the last command, and no longer at `place`. Returns the new place.
  size_t move_record(const std::shared_ptr<Marker>& marker, size_t place);
  static constexpr size_t kNowhere = SIZE_MAX;
  void keep(Kept kept);
  /// Another stream's work is recorded too, until the capture ends.
  void add_branch(std::shared_ptr<Queue> queue);

  std::vector<std::shared_ptr<Queue>> take_branches() noexcept;
  Recorded take() noexcept;

 private:
  const uint64_t id_;
  std::mutex mutex_;
  Recorded recorded_;
  std::vector<std::shared_ptr<Queue>> branches_;
};

}  // namespace symmetra::device::host
