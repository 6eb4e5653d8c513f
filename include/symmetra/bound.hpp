/// \file
/// All-reduces bound to their operands.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/capture.hpp"

namespace symmetra {

namespace core {
struct BoundAllReduce;
}

/// An all-reduce on operands that were validated when it was made, by Collectives::bind_all_reduce: algorithm, launch
/// shape and kernel arguments are fixed. Move-only; usable from any thread.
///
/// It is the same operation as Collectives::all_reduce, and ranks may mix both. Captured on memory that peers cannot
/// address, it remains a message that is pushed, as on a stream. An ordinary call makes the graph register such memory
/// and may use another algorithm, so in that case all ranks must capture the same kind.
///
/// Shares ownership of its communicator, buffers and adoptions. They may be destroyed before it; a closed communicator
/// makes enqueue() throw.
class BoundAllReduce {
 public:
  BoundAllReduce(BoundAllReduce&&) noexcept = default;
  BoundAllReduce& operator=(BoundAllReduce&&) noexcept = default;

  /// Enqueues the all-reduce once and returns; the operands are used in stream order. On a stream it looks nothing up,
  /// takes no blocking lock and allocates nothing. In a capture the graph keeps the recorded call, which allocates.
  ///
  /// Calls of a communicator have one order on every rank, so enqueue them from one thread at a time. If another thread
  /// is enqueueing at this moment, the call is refused instead of waiting.
  ///
  /// Throws kInvalidArgument for a stream of another device; kClosed after the communicator was closed; the group's error if the group has
  /// failed; kUnsupported while another thread enqueues a call of the communicator, or on a stream that Stream::capture records (enqueue on
  /// the Capture there); kDevice if the launch fails. A stream that its owner captures natively is served.
  void enqueue(Queue queue) const;

 private:
  friend class Collectives;
  explicit BoundAllReduce(std::shared_ptr<core::BoundAllReduce> core) : core_(std::move(core)) {}

  std::shared_ptr<core::BoundAllReduce> core_;
};

}  // namespace symmetra
