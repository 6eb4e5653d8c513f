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

/// An all-reduce with validated operands, made by Communicator::bind_all_reduce. Algorithm, launch shape and kernel
/// arguments are already decided. Move-only; usable from any thread.
///
/// It is the same operation as Communicator::all_reduce: a bound call on one rank may meet an ordinary call on another.
/// In a capture with memory that peers cannot address, do not mix bound and ordinary calls across ranks: the bound call
/// pushes its message, while the graph registers memory of the ordinary call, which may then pick another algorithm.
///
/// Shares ownership of its communicator, buffers and adoptions. They may be destroyed before it; a closed communicator
/// makes enqueue() throw.
class BoundAllReduce {
 public:
  BoundAllReduce(BoundAllReduce&&) noexcept = default;
  BoundAllReduce& operator=(BoundAllReduce&&) noexcept = default;

  /// Enqueues the all-reduce once and returns; the operands are used when the queue reaches it. On a stream it looks
  /// nothing up, waits for no lock and allocates nothing. In a capture the graph keeps what is recorded, which
  /// allocates.
  ///
  /// Calls of a communicator have one order on every rank, so enqueue them from one thread at a time. If another thread
  /// is enqueueing at this moment, the call is refused instead of waiting.
  ///
  /// Throws kInvalidArgument for a stream of another device; kClosed after the communicator was closed; the group's
  /// error when it failed before; kUnsupported while another thread enqueues a call of the communicator, or on a stream
  /// that is being captured; kDevice when the launch fails.
  void enqueue(Queue queue) const;

 private:
  friend class Communicator;
  explicit BoundAllReduce(std::shared_ptr<core::BoundAllReduce> core) : core_(std::move(core)) {}

  std::shared_ptr<core::BoundAllReduce> core_;
};

}  // namespace symmetra
