/// \file
/// Graphs, and captures that record them.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/stream.hpp"

namespace symmetra {

class Queue;

namespace core {
struct Capture;
struct Graph;
struct NativeCapture;
struct QueueParts;
class Recorder;
}  // namespace core

/// A capture in progress, handed to the function of Stream::capture. It ends when that function returns. It belongs to
/// one thread: use on another throws kInvalidArgument.
class Capture {
 public:
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  friend class Queue;
  friend class core::Recorder;
  explicit Capture(const core::Capture& core) : core_(&core) {}

  const core::Capture* core_;
};

/// Where an operation is enqueued: a stream, which runs it, or a capture, which records it. Made by conversion in a
/// call; must not outlive its source.
class Queue {
 public:
  Queue(const Stream& stream) : stream_(stream.core_.get()) {}
  Queue(const Capture& capture) : capture_(capture.core_) {}

 private:
  friend struct core::QueueParts;

  const core::Stream* stream_ = nullptr;
  const core::Capture* capture_ = nullptr;
};

/// Captured work that can be launched any number of times. Move-only; usable from any thread.
///
/// Shares ownership of the communicators, buffers and adoptions it uses. They may be destroyed before the graph; a
/// closed communicator makes launch() throw. A launch in flight outlives the object, which waits for it where the
/// runtime's own free would.
class Graph {
 public:
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;

  /// Exchanges between all ranks the pointers that were captured without having been adopted. Collective over every
  /// communicator in the graph; blocks. A graph without such pointers needs no call; further calls do no harm. From
  /// then on memory given by address stays allocated as Communicator::adopt asks, even after the graph is destroyed;
  /// memory of buffers stays by itself as long as peers have it mapped. Throws kMismatch when the ranks captured
  /// different numbers or sizes of pointers, or reused pointers at different places, and kUnsupported when some memory
  /// cannot be shared.
  void register_pointers() const;

  /// Enqueues all captured work on `stream`. Does not block or allocate. Throws kNotRegistered before register_pointers() where it is
  /// needed, kClosed after a communicator in the graph was closed, the group's error if the group has failed, kInvalidArgument for a stream
  /// of another device, and kUnsupported for a stream that Stream::capture records.
  void launch(const Stream& stream) const;

 private:
  friend class Coordinator;
  friend class Stream;
  explicit Graph(std::shared_ptr<core::Graph> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Graph> core_;
};

/// Work that the owner of a stream captured (Stream::begin_capture), ready to launch any number of times. Move-only;
/// usable from any thread. Does not share ownership of the memory that it uses. The library does not see its launches: the
/// owner orders them, unless Config::graph_mixing is on, and makes one eager call on all ranks before the first.
class NativeGraph {
 public:
  NativeGraph(NativeGraph&&) noexcept = default;
  NativeGraph& operator=(NativeGraph&&) noexcept = default;

  /// Enqueues the captured work on `stream`, as `cudaGraphLaunch` does. Does not block. A launch in flight outlives the object. Throws
  /// kInvalidArgument for a stream of another device, kUnsupported for a stream that Stream::capture records, kDevice when the runtime
  /// refuses.
  void launch(const Stream& stream) const;

 private:
  friend class NativeCapture;
  explicit NativeGraph(std::shared_ptr<core::Graph> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Graph> core_;
};

/// A capture that the owner of a stream began. Move-only; belongs to the thread that began it. Destroying it ends the capture and drops the
/// recorded work.
class NativeCapture {
 public:
  NativeCapture(NativeCapture&&) noexcept = default;
  NativeCapture& operator=(NativeCapture&&) noexcept = default;

  /// Ends the capture, as `cudaStreamEndCapture` and `cudaGraphInstantiate` do. Throws kInvalidArgument for a capture that has ended,
  /// kDevice when the runtime refuses, kOutOfMemory when some work could not be recorded.
  NativeGraph end();

 private:
  friend class Stream;
  explicit NativeCapture(std::shared_ptr<core::NativeCapture> core) : core_(std::move(core)) {}

  std::shared_ptr<core::NativeCapture> core_;
};

}  // namespace symmetra
