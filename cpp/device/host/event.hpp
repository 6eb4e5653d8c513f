// Events: a position in a queue, and the time when the position was reached.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cpp/device/device.hpp"
#include "cpp/device/host/command.hpp"

namespace symmetra::device::host {

class Recording;

/// The state of an event, which commands in flight share. A captured record takes effect at each launch of its graph.
class Marker {
 public:
  /// A record was enqueued at `point`.
  void set(Point point) noexcept;
  /// The worker of `queue` has run the record at `position`. Ignored if a later record exists.
  void stamp(const Queue* queue, uint64_t position) noexcept;
  /// The last record, whether or not it has been reached.
  Point last() const noexcept;
  /// The time when the last record ran. Throws if it has not run, or if there was none.
  std::chrono::steady_clock::time_point time() const;

  /// The unfinished capture with the last record; null if there is none.
  std::shared_ptr<Recording> captured() const noexcept;
  void set_captured(const std::shared_ptr<Recording>& recording) noexcept;

 private:
  mutable std::mutex mutex_;
  Point last_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
  std::weak_ptr<Recording> captured_;
};

class Event final : public device::Event {
 public:
  Event() : marker_(std::make_shared<Marker>()) {}

  bool done() const override;
  void synchronize() const override;
  double elapsed_us(const device::Event& start) const override;

  const std::shared_ptr<Marker>& marker() const noexcept { return marker_; }

 private:
  std::shared_ptr<Marker> marker_;
};

}  // namespace symmetra::device::host
