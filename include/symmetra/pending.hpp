/// \file
/// Collectives in progress, concurrently with the streams of their callers.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/capture.hpp"

namespace symmetra {

namespace core {
struct Pending;
}

/// A low-contention collective in progress. No stream may touch its operands before that stream's wait(). Move-only;
/// usable from any thread.
///
/// Destroyed without a wait, it makes the stream of the call wait, or the capture at its end. Memory given by address
/// stays valid until the collective is done.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  /// Makes work enqueued on `queue` from now on wait for the collective. Returns at once; any number of streams may wait. A collective
  /// recorded by a capture can be awaited in that capture only. Throws kInvalidArgument for another device or capture, kUnsupported for a
  /// stream that is being captured, and the group's error when it has failed; in that last case `queue` waits nevertheless.
  void wait(Queue queue) const;

 private:
  friend class Collectives;
  explicit Pending(std::shared_ptr<core::Pending> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Pending> core_;
};

}  // namespace symmetra
