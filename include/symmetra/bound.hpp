/// \file
/// Calls bound to their operands.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/capture.hpp"

namespace symmetra {

namespace core {
struct BoundAllReduce;
}

/// An all-reduce on operands that were found right when it was made, by Collectives::bind_all_reduce:
/// algorithm, launch shape and kernel arguments are decided. Move-only; usable from any thread.
///
/// It is the same operation as Collectives::all_reduce, and ranks may use either: a call of one meets a
/// call of the other. Captured on memory that peers cannot address it stays what it is on a stream, a message
/// that is pushed; an ordinary call, which has the graph register such memory, may be another algorithm, so
/// there all ranks capture the same kind.
///
/// Shares ownership of the communicator, buffers and adoptions it was made of: these may be destroyed before it,
/// and a closed communicator makes enqueue() throw.
class BoundAllReduce {
 public:
  BoundAllReduce(BoundAllReduce&&) noexcept = default;
  BoundAllReduce& operator=(BoundAllReduce&&) noexcept = default;

  /// Enqueues the all-reduce once and returns; the operands are used when the queue gets there. On a stream
  /// it looks nothing up, waits for no lock and allocates nothing; what a capture records, the graph keeps,
  /// which allocates.
  ///
  /// It takes its turn among the communicator's other calls. These come in one order on every rank, so from
  /// one thread at a time; where another thread is enqueueing one this very moment, the order is up to chance,
  /// and instead of waiting for that thread the call is refused.
  ///
  /// Throws kInvalidArgument for a stream of another device; kClosed after the communicator was closed; the
  /// group's error when it failed before; kUnsupported while another thread enqueues a call of the
  /// communicator, or on a stream that is being captured; kDevice when the launch fails.
  void enqueue(Queue queue) const;

 private:
  friend class Collectives;
  explicit BoundAllReduce(std::shared_ptr<core::BoundAllReduce> core) : core_(std::move(core)) {}

  std::shared_ptr<core::BoundAllReduce> core_;
};

}  // namespace symmetra
