/// \file
/// Captured work: graphs.
#pragma once

#include <memory>
#include <utility>

#include "symmetra/stream.hpp"

namespace symmetra {

class Queue;

namespace core {
struct Capture;
struct Graph;
struct Queue;
class Recorder;

Queue queue_of(const symmetra::Queue& queue);
}  // namespace core

/// A capture in progress, handed to the function of Stream::capture. It is gone when that function
/// returns, and belongs to its thread: on another one its use throws kInvalidArgument.
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

/// Where an operation is enqueued: a stream, which runs it, or a capture, which records it. Made
/// by conversion in a call; does not outlive what it was made of.
class Queue {
 public:
  Queue(const Stream& stream) : stream_(stream.core_.get()) {}
  Queue(const Capture& capture) : capture_(capture.core_) {}

 private:
  friend core::Queue core::queue_of(const Queue& queue);

  const core::Stream* stream_ = nullptr;
  const core::Capture* capture_ = nullptr;
};

/// Captured work, ready to launch any number of times. Move-only; usable from any thread.
///
/// Shares ownership of the communicators, buffers and adoptions it uses: these may be destroyed
/// before it, and a closed communicator makes launch() throw. A launch in flight outlives the object,
/// which waits for it where the runtime's own free would.
class Graph {
 public:
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;

  /// Exchanges between all ranks the pointers that were captured without having been adopted, so
  /// that the graph can be launched. Collective over every communicator in the graph; blocks. A graph
  /// without such pointers needs no call; one more call does no harm. From here on memory that was
  /// given by address stays allocated as Communicator::adopt asks, also when the graph is gone; that of buffers
  /// does by itself, as long as peers have it mapped. Throws kMismatch when the ranks
  /// captured different numbers or sizes, or not the same pointers again at the same places, kUnsupported when
  /// some memory cannot be shared.
  void register_pointers() const;

  /// Enqueues all of the captured work on `stream`. Does not block, allocates nothing. Throws
  /// kNotRegistered before register_pointers() where it is needed, kClosed after a communicator in
  /// it was closed, the group's error when it failed, kInvalidArgument for a stream of another device, kUnsupported for
  /// one that is being captured.
  void launch(const Stream& stream) const;

 private:
  friend class Coordinator;
  friend class Stream;
  explicit Graph(std::shared_ptr<core::Graph> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Graph> core_;
};

}  // namespace symmetra
