/// \file
/// Streams: queues of device work.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "symmetra/device.hpp"

namespace symmetra {

namespace core {
struct Stream;
}
class Capture;
class Graph;

/// A queue of work that runs in order on a device. Move-only; usable from any thread. Enqueueing returns at once;
/// synchronize() blocks.
class Stream {
 public:
  /// Creates a stream of `device`. Throws kDevice or kSystem when the runtime refuses.
  explicit Stream(const Device& device);

  /// Wraps the caller's stream: a `cudaStream_t` or `hipStream_t`, null for the default stream.
  ///
  /// It belongs to `device` and stays valid until the result is destroyed and every Communicator it
  /// was used with is closed, was used with another stream or has left it (Communicator::leave, Coordinator::leave). A Multiplier needs the
  /// handle only during its calls. While one Stream of a handle is being captured no other is used. A handle that is another stream on each
  /// thread, such as cudaStreamPerThread, is used from one thread. Throws kUnsupported on the host device, whose streams have no handle.
  static Stream borrow(const Device& device, void* native);

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  /// The runtime's handle (`cudaStream_t`, `hipStream_t`), valid as long as this object; null on the host device.
  void* native() const;
  /// Whether all work enqueued so far is done. Does not block. Throws kDevice when some of it failed. A stream does not
  /// know groups: a collective that gave up counts as done, and its output holds old values. Call
  /// Communicator::synchronize before you use the output.
  bool done() const;
  /// Blocks until all work enqueued so far is done. Throws kDevice when some of it failed. A stream does not know
  /// groups: a collective that gave up counts as done, and its output holds old values. Where the stream has
  /// collectives, call Communicator::synchronize instead.
  void synchronize() const;

  /// Calls `record` once, immediately, with a Capture of this stream. Work enqueued on the Capture is recorded into the
  /// graph instead of run. An exception of `record` ends the capture, drops the recording, and is rethrown. Include
  /// symmetra/capture.hpp to call this.
  ///
  /// The graph keeps its communicators, buffers and adoptions alive, but not memory given by address: that must outlive
  /// the graph and its last launch, and registered memory must live on as Communicator::adopt asks.
  ///
  /// Throws kUnsupported inside a capture of the same stream and on the default stream, kDevice when the runtime
  /// refuses.
  Graph capture(const std::function<void(Capture&)>& record) const;

 private:
  friend class Communicator;
  friend class Coordinator;
  friend class DeviceBuffer;
  friend class Graph;
  friend class Queue;
  friend class SymmetricBuffer;
  explicit Stream(std::shared_ptr<core::Stream> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Stream> core_;
};

}  // namespace symmetra
