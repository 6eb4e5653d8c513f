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
class NativeCapture;

/// A queue of work that runs in order on a device. Move-only; usable from any thread. Enqueueing returns at once;
/// synchronize() blocks.
class Stream {
 public:
  /// Creates a stream of `device`. Throws kDevice or kSystem when the runtime refuses.
  explicit Stream(const Device& device);

  /// Wraps the caller's stream: a `cudaStream_t` or `hipStream_t`, null for the default stream.
  ///
  /// On the host device a Stream of this library takes the place of the caller's: the handle is the result of native()
  /// of a Stream of the same Device. So an engine that passes its streams runs on a CPU unchanged. There is no default
  /// stream. Once that Stream is destroyed, a call with the result throws kDevice.
  ///
  /// The handle belongs to `device`, and stays valid until the result is destroyed. For each Communicator and
  /// Coordinator that used the stream, the handle also stays valid until the object is closed, was used with another
  /// stream, or has left the stream (Communicator::leave, Coordinator::leave). The same holds for each Experts and each
  /// Mixed that used the stream, until that object is destroyed or was used with another stream. A Multiplier needs the
  /// handle only during its calls. While one Stream of a handle is being captured, no other Stream of the handle is used. A
  /// handle that means another stream on each thread is used from one thread, with one exception: on
  /// cudaStreamPerThread and hipStreamPerThread a Communicator, an Experts and a Mixed each order their own calls
  /// across threads, except low-contention collectives. Each thread orders the rest of its work there. On the host device, throws
  /// kInvalidArgument for a handle that no stream of the device has.
  static Stream borrow(const Device& device, void* native);

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  /// The runtime's handle (`cudaStream_t`, `hipStream_t`), valid as long as this object. On the host device, a number
  /// for borrow(), which is unique in the process and is not an address.
  void* native() const;
  /// Whether all work enqueued so far is done. Does not block. Throws kDevice when some of it failed. Does not report
  /// collective failures: a collective that gave up counts as done, and its output holds old values. Call
  /// Communicator::synchronize before you use the output.
  bool done() const;
  /// Blocks until all work enqueued so far is done. Throws kDevice when some of it failed. Does not report collective
  /// failures: a collective that gave up counts as done, and its output holds old values. If the stream has
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

  /// Begins a capture as the owner of the stream, as `cudaStreamBeginCapture` does: work that any thread enqueues on
  /// the stream from now on is recorded instead of run, until NativeCapture::end. Unlike capture(), the library treats
  /// each call as an eager one on a stream that its owner captures ("Graphs of the engine" in docs/porting.md). So the
  /// code of an engine that captures by itself, with CUDA's or HIP's functions, can be tested on the host device
  /// unchanged. Works on every device. Does not block. Include symmetra/capture.hpp to call this.
  ///
  /// The memory and the communicators of all recorded work live until the graph and its last launch are gone. Launches
  /// of the graph are ordered as calls of the communicators would be, equally on all ranks. Throws kUnsupported inside
  /// a capture() of the stream, kInvalidArgument or kDevice inside another capture, and kDevice if the runtime refuses.
  NativeCapture begin_capture() const;

 private:
  friend class Communicator;
  friend class Coordinator;
  friend class DeviceBuffer;
  friend class Graph;
  friend class NativeGraph;
  friend class Queue;
  friend class SymmetricBuffer;
  explicit Stream(std::shared_ptr<core::Stream> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Stream> core_;
};

}  // namespace symmetra
