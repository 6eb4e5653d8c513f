/// \file
/// Signals between ranks on streams.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "symmetra/capture.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/memory.hpp"

namespace symmetra {

/// Number of independent channels of a pad.
constexpr std::size_t kSignalChannels = 16;

/// Signals between the ranks of a symmetric buffer, whose ownership it shares. Copies are the same pad; usable from any
/// thread.
///
/// A signal is a counter in the receiver's memory, one for every channel and sender. Counters only grow and live in device memory, so all
/// operations may be captured and replayed. No operation blocks the caller or allocates. Each throws kInvalidArgument for a channel or peer
/// outside its limit or a stream of another device, kClosed after close, and the group's error if the group has failed.
class SignalPad {
 public:
  /// Raises `peer`'s counter for this rank on `channel`, after all earlier work of the queue, which the peer then sees.
  void put(std::size_t peer, std::size_t channel, Queue queue) const;
  /// Makes the queue wait for one more put of `peer` on `channel`. Gives up after Deadlines::steady:
  /// Communicator::synchronize then throws kTimeout.
  void wait(std::size_t peer, std::size_t channel, Queue queue) const;
  /// A barrier between the queues of all ranks: a put to every rank and a wait for every rank on `channel`.
  void barrier(std::size_t channel, Queue queue) const;

  /// The pad for your own kernel: plain data for the functions of symmetra/device/signal.cuh. Its addresses are valid
  /// until the communicator is closed.
  device::SignalPad view() const;

 private:
  friend class SymmetricBuffer;
  explicit SignalPad(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

}  // namespace symmetra
