/// \file
/// Collectives under way beside the streams of their callers.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/capture.hpp"

namespace symmetra {

namespace core {
struct Pending;
}

/// A low-contention collective under way: wait() says who needs its result. Until then no stream may touch
/// its operands. Move-only; usable from any thread.
///
/// Destroyed without a wait, the stream of the call waits, as if it had been told to; a capture does when it
/// ends. Memory given by address stays valid until the collective is done.
class [[nodiscard]] Pending {
 public:
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  /// Makes what is enqueued on `queue` from here on wait for the collective. Enqueues and returns; any number of
  /// streams may wait. What a capture recorded, only that capture awaits. Throws kInvalidArgument for
  /// another device or capture, kUnsupported for a stream that is being captured, and the group's error when
  /// it has failed: then `queue` waits all the same.
  void wait(Queue queue) const;

 private:
  friend class Collectives;
  explicit Pending(std::shared_ptr<core::Pending> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Pending> core_;
};

}  // namespace symmetra
