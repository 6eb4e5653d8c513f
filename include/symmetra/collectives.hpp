/// \file
/// The operations of a group: those of Communicator and of Coordinator.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "symmetra/bound.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/pending.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct Communicator;
struct Coordinator;
}  // namespace core

/// One message of a batch.
struct Message {
  Operand operand;
  std::size_t peer;
  bool sends;

  static Message send(Operand operand, std::size_t peer) { return {operand, peer, true}; }
  static Message receive(Operand operand, std::size_t peer) { return {operand, peer, false}; }
};

/// The operations of a group. Ranks, roots and peers are numbered in the group.
///
/// A collective enqueues and returns, allocating nothing where it succeeds; the operands are used when the queue gets to
/// the call. Any number of elements, also 0; any element-aligned address. Operands may not overlap but for the form in
/// place. On Backend::kHost a call blocks until its result is there.
///
/// A collective throws kInvalidArgument for operands of different types, of lengths that do not fit each other or do not
/// divide, of another device, null or misaligned, or that overlap, for a root or peer outside the group, and for a root
/// without its operand; kUnsupported where an algorithm or Config::transport asks for what the type or the memory cannot
/// do, and where no backend serves the call; kClosed after close; the group's error when the group failed before; kDevice
/// when the launch fails.
class Collectives {
 public:
  using Message = symmetra::Message;

  /// Reduces `input` over all ranks into `output`, which has as many elements. Sums unless told otherwise.
  ///
  /// The bits are equal on all ranks and from run to run: Reduction says which bits. The ring and recursive doubling
  /// reduce floating types in another order and round at every rank, unless Config::determinism forbids these
  /// algorithms. Over one rank the result is the input. Both operands may be the same memory. Own kernels alone serve a
  /// call that names an algorithm.
  void all_reduce(Operand input, Operand output, Queue queue, AllReduceOptions options = AllReduceOptions()) const;
  /// Reduces `buffer` over all ranks in place.
  void all_reduce(Operand buffer, Queue queue, AllReduceOptions options = AllReduceOptions()) const {
    all_reduce(buffer, buffer, queue, options);
  }
  /// Reduces `count` elements at `input` over all ranks into `output`; `input` is only read.
  template <class T>
  void all_reduce(const T* input, T* output, std::size_t count, Queue queue, AllReduceOptions options = AllReduceOptions()) const {
    constexpr Dtype kDtype = DtypeOf<T>::kValue;
    all_reduce(Operand(const_cast<T*>(input), count, kDtype), Operand(output, count, kDtype), queue, options);
  }
  /// Binds an all-reduce to its operands: checks and plans the call once, for any number of BoundAllReduce::enqueue. Not
  /// collective; does not block. Memory given by address stays valid as long as the result and all work that the result
  /// enqueued. Own kernels alone serve bound calls. Throws what all_reduce throws, but for what is wrong with a stream.
  BoundAllReduce bind_all_reduce(Operand input, Operand output, AllReduceOptions options = AllReduceOptions()) const;

  /// Puts the `input` of every rank, in rank order, into the `output` of every rank, which has world size times as many
  /// elements. In place: `input` is this rank's part of `output`.
  void all_gather(Operand input, Operand output, Queue queue) const { run("all-gather", input, output, queue); }
  /// All-gather along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the shape with
  /// shape[dim] times the world size. Nothing is copied before or after.
  void all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output, Queue queue) const;

  /// Reduces `input` over all ranks, in rank order and rounded once, and puts this rank's part of the result into
  /// `output`; `input` has world size times as many elements. In place: `output` is this rank's part of `input`.
  void reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const {
    run("reduce-scatter", input, output, queue, reduction);
  }
  /// Reduce-scatter along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the shape with
  /// shape[dim] divided by the world size. Nothing is copied before or after.
  void reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output, Reduction reduction,
                            Queue queue) const;

  /// Cuts `input` into a part for every rank and fills `output` with the parts that came from every rank, in rank order.
  /// Both have as many elements, a multiple of the world size.
  void all_to_all(Operand input, Operand output, Queue queue) const { run("all-to-all", input, output, queue); }
  /// All-to-all with a count of elements for each rank: one strip behind the other in either operand. Where what a rank
  /// sends is not what its peer expects, later calls of every rank throw kMismatch, which names both, and all outputs
  /// are undefined; NCCL does not compare the counts.
  void all_to_all_v(Operand input, const std::vector<std::size_t>& send_counts, Operand output,
                    const std::vector<std::size_t>& receive_counts, Queue queue) const;

  /// Copies the `buffer` of rank `root` into the buffer of every other rank.
  void broadcast(Operand buffer, std::size_t root, Queue queue) const {
    run("broadcast", std::nullopt, buffer, queue, Reduction::kSum, root);
  }

  /// Reduces `input` over all ranks, in rank order and rounded once, into the `output` of rank `root`; on other ranks
  /// `output` is not looked at. The root's operands may be the same memory.
  void reduce(Operand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const {
    run("reduce", input, output, queue, reduction, root);
  }
  /// Reduces `buffer` over all ranks into the `buffer` of rank `root`. Ranks may mix this with the other form.
  void reduce(Operand buffer, Reduction reduction, std::size_t root, Queue queue) const { reduce(buffer, buffer, reduction, root, queue); }

  /// Puts the `input` of every rank, in rank order, into the `output` of rank `root`, which has world size times as many
  /// elements; on other ranks `output` is not looked at. In place: the root's `input` is its part.
  void gather(Operand input, std::optional<Operand> output, std::size_t root, Queue queue) const {
    run("gather", input, output, queue, Reduction::kSum, root);
  }
  /// Cuts the `input` of rank `root` into a part for every rank and puts each part into that rank's `output`; on other
  /// ranks `input` is not looked at. In place: the root's `output` is its part.
  void scatter(std::optional<Operand> input, Operand output, std::size_t root, Queue queue) const {
    run("scatter", input, output, queue, Reduction::kSum, root);
  }

  /// Puts the `input` of every rank into the `output` of the rank `by` further, modulo the world size; a negative `by`
  /// goes the other way round. `by` is the same on every rank. Both operands have as many elements.
  void shift(Operand input, Operand output, std::ptrdiff_t by, Queue queue) const {
    run("shift", input, output, queue, Reduction::kSum, static_cast<std::size_t>(by));
  }

  /// Sends and receives all of `messages` as one operation, in which every rank of the group takes part, if only with
  /// none. At most one message to, and one from, each rank. Sizes in bytes are compared first: where they differ, later
  /// calls of every rank throw kMismatch, and what was to be received is undefined. NCCL does not compare sizes.
  void batch(const std::vector<Message>& messages, Queue queue) const;

  /// all_gather by the copy engines, on a stream of the communicator's own that waits for `queue`: what is enqueued
  /// behind this call runs beside the copies, up to Pending::wait. No multiprocessor moves data; each of the two barriers
  /// is a kernel of one block. No stream may touch either operand before the end. Own kernels alone serve this form.
  ///
  /// Each rank copies from the `input` of the others where `input` is symmetric or adopted memory, the same elements of
  /// it on every rank. Other memory is copied first, into a workspace of as many bytes in the heap of symmetric memory;
  /// so is adopted memory where ranks with GPUs are threads of one process. In place on every rank or on none. Where the
  /// call fails, copies still read the inputs of others: adopted memory stays allocated until every rank has closed or
  /// destroyed its communicator.
  ///
  /// Throws what all_gather throws; kUnsupported for a stream that its owner captures, and in a capture where the
  /// workspace is too small; kOutOfMemory when the heap has no room for the workspace.
  Pending low_contention_all_gather(Operand input, Operand output, Queue queue) const;
  /// reduce_scatter, with its bits, by the copy engines: see low_contention_all_gather. Each rank copies the parts of its
  /// `input` to the ranks that reduce them, into a workspace of as many bytes as the input has; a kernel then reduces the
  /// parts in rank order, the only step that multiprocessors take.
  Pending low_contention_reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const;
  /// Makes a workspace for the low-contention collectives, for operands of up to `bytes` bytes. Collective; blocks.
  /// Without a workspace the first call that needs more than there is makes one: that call is collective and blocks; a
  /// captured call is refused. Throws kOutOfMemory when the heap has no such gap, kMismatch when ranks ask for different
  /// sizes, kUnsupported for a group that spans hosts.
  void reserve_workspace(std::size_t bytes) const;

 protected:
  explicit Collectives(std::shared_ptr<core::Communicator> communicator) : communicator_(std::move(communicator)) {}
  explicit Collectives(std::shared_ptr<core::Coordinator> coordinator) : coordinator_(std::move(coordinator)) {}
  ~Collectives() = default;
  Collectives(Collectives&&) noexcept = default;
  Collectives& operator=(Collectives&&) noexcept = default;

  /// Runs the operation with this name. `parameter` is the root, or the distance between ranks, which may be
  /// negative.
  void run(const char* operation, const std::optional<Operand>& input, const std::optional<Operand>& output, const Queue& queue,
           Reduction reduction = Reduction::kSum, std::size_t parameter = 0) const;

  /// Exactly one is not null, unless the object was moved from.
  std::shared_ptr<core::Communicator> communicator_;
  std::shared_ptr<core::Coordinator> coordinator_;
};

}  // namespace symmetra
