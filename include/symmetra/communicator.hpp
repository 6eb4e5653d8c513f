/// \file
/// A group of ranks with memory: what runs collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/bootstrap.hpp"
#include "symmetra/bound.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/config.hpp"
#include "symmetra/device.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/pending.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct Communicator;
}

/// Which algorithm serves messages up to a size, and why.
struct Range {
  std::uint64_t up_to_bytes;
  Algorithm algorithm;
  std::string reason;
};

/// The ranks of one host that work together, and their memory. Move-only; usable from any thread.
///
/// All ranks make the same calls in the same order. Calls on one stream run in its order; a call on
/// another stream than the last waits for the last. Collectives enqueue and return: errors of the device
/// come with a later call, or from synchronize().
///
/// It fails as one: after a rank died, a deadline passed or somebody called abort(), every call throws
/// the same error, on every rank, and nothing spins.
///
/// close() before destroying it. The destructor is not collective and does not throw: destroyed
/// unclosed, this rank counts as lost by the others. Buffers, adoptions and graphs share ownership of
/// what they need and may be destroyed later.
class Communicator {
 public:
  /// Opens a group of all ranks of `bootstrap`, which is used during the call only, and its memory.
  /// Collective; blocks. Throws kInvalidArgument for a world size above 16, a rank outside it or a
  /// setting outside its limits, kMismatch when ranks differ in version, build, device kind or settings,
  /// kOutOfMemory when the device cannot hold the arena, kPeer when another rank cannot take part,
  /// kTimeout and kPeerLost when one does not answer, kBootstrap when `bootstrap` throws.
  static Communicator open(Bootstrap& bootstrap, const Device& device, const Config& config = Config());

  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;

  std::size_t rank() const;
  std::size_t world_size() const;
  /// The device of this rank, which streams and memory for it are made on.
  Device device() const;

  /// Ranks with the same colour form a new group, in the order of `key`, then of rank; a rank without
  /// colour gets none. Collective over all ranks; blocks. Throws as open.
  std::optional<Communicator> split(std::optional<std::uint32_t> color, std::int32_t key = 0) const;
  /// Blocks until every rank called it. Says nothing about work on streams. Throws the group's error,
  /// and kTimeout after Deadlines::open.
  void barrier() const;
  /// Gives `bytes` bytes at `send` to every rank and stores those of every rank at `receive`, in rank
  /// order. Blocks. Throws as barrier, kInvalidArgument for null with bytes, and kMismatch when ranks give different
  /// numbers of bytes.
  void all_gather(const void* send, void* receive, std::size_t bytes) const;

  /// Makes a zeroed symmetric buffer of `count` elements. Collective; blocks. Throws kOutOfMemory when
  /// the heap has no such gap, kMismatch when ranks ask for different sizes.
  SymmetricBuffer symmetric(std::size_t count, Dtype dtype) const;
  template <class T>
  SymmetricBuffer symmetric(std::size_t count) const {
    return symmetric(count, DtypeOf<T>::kValue);
  }

  /// Makes the caller's memory known to all ranks, which adopt one each of the same size. Collective;
  /// blocks. The memory must stay allocated until every rank has closed or destroyed its communicator, also
  /// when the result is gone before: peers still have it mapped, and after a call that failed they may still
  /// write there. Ranks that are all threads of one process map nothing: of these the memory may go once
  /// this rank's calls with it have ended without an error, for each ends with a barrier behind which no peer
  /// touches it. Throws kInvalidArgument for a null or misaligned address or memory of another device and
  /// kOutOfMemory when all registrations are in use, and kPeer on the other ranks for either; kMismatch when the sizes differ.
  Adopted adopt(void* address, std::size_t count, Dtype dtype) const;
  template <class T>
  Adopted adopt(T* address, std::size_t count) const {
    return adopt(static_cast<void*>(address), count, DtypeOf<T>::kValue);
  }

  /// Reduces `input` over all ranks into `output`, which has as many elements of the same type. Enqueues and
  /// returns, allocating nothing; the operands are used when the queue gets there.
  ///
  /// Sums unless told otherwise. The bits are equal on all ranks and from run to run: Reduction says what they
  /// are. The ring and recursive doubling reduce floating types in another order and round at every rank,
  /// unless Config::determinism forbids them. Over one rank the result is the input. Both may be the same
  /// memory but may not overlap otherwise. Any number of elements, also 0; any element-aligned address.
  ///
  /// Throws kInvalidArgument for operands of different lengths or types, of another device, null or
  /// misaligned, or that overlap; kUnsupported when an algorithm asked for cannot carry the type or
  /// reach the operands; kClosed after close; the group's error when it failed before; kDevice when the
  /// launch fails.
  void all_reduce(Operand input, Operand output, Queue queue, AllReduceOptions options = AllReduceOptions()) const;
  /// The same in place.
  void all_reduce(Operand buffer, Queue queue, AllReduceOptions options = AllReduceOptions()) const;
  /// The same with memory given by address; `input` is only read.
  template <class T>
  void all_reduce(const T* input, T* output, std::size_t count, Queue queue, AllReduceOptions options = AllReduceOptions()) const {
    constexpr Dtype kDtype = DtypeOf<T>::kValue;
    all_reduce(Operand(const_cast<T*>(input), count, kDtype), Operand(output, count, kDtype), queue, options);
  }

  /// Binds an all-reduce to its operands: makes what can be made of it before it is enqueued. Not collective;
  /// does not block. Memory given by address stays valid as long as the result and all work it enqueued.
  ///
  /// Throws as all_reduce, but for what is wrong with a stream.
  BoundAllReduce bind_all_reduce(Operand input, Operand output, AllReduceOptions options = AllReduceOptions()) const;

  // The collectives below enqueue and return, as all_reduce does, and throw what it throws; also
  // kInvalidArgument for counts that do not fit each other or do not divide, a root or peer outside the
  // group, and a root without its operand; kUnsupported when Config::transport asks for what the memory
  // cannot do. Any element-aligned address. Operands may not overlap but for the form in place.

  /// Puts the `input` of every rank, in rank order, into `output` of every rank, which has world size times
  /// as many elements. In place: `input` is this rank's part of `output`.
  void all_gather(Operand input, Operand output, Queue queue) const;
  /// The same along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the same with
  /// shape[dim] times the world size. Nothing is copied before or after.
  void all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output, Queue queue) const;

  /// Reduces `input` over all ranks, in rank order and rounded once, and puts this rank's part of the result
  /// into `output`; `input` has world size times as many elements. In place: `output` is this rank's part
  /// of `input`.
  void reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const;
  /// The same along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the same with
  /// shape[dim] divided by the world size. Nothing is copied before or after.
  void reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, Operand input, Operand output, Reduction reduction,
                            Queue queue) const;

  /// Cuts `input` into a part for every rank and fills `output` with the parts that came from every rank, in
  /// rank order. Both have as many elements, a multiple of the world size.
  void all_to_all(Operand input, Operand output, Queue queue) const;
  /// The same with a count of elements for each rank: one strip behind the other in either operand. Where
  /// what a rank sends is not what its peer expects, later calls of every rank throw kMismatch, which
  /// names both, and all outputs are undefined.
  void all_to_all_v(Operand input, const std::vector<std::size_t>& send_counts, Operand output,
                    const std::vector<std::size_t>& receive_counts, Queue queue) const;

  /// Copies the `buffer` of rank `root` into that of every other rank.
  void broadcast(Operand buffer, std::size_t root, Queue queue) const;

  /// Reduces `input` over all ranks, in rank order and rounded once, into the `output` of rank `root`; on other
  /// ranks it is not looked at. The root's operands may be the same memory.
  void reduce(Operand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const;
  /// The same in place; where peers can address the buffers they share the work.
  void reduce(Operand buffer, Reduction reduction, std::size_t root, Queue queue) const;

  /// Puts the `input` of every rank, in rank order, into the `output` of rank `root`, which has world size
  /// times as many elements; on other ranks it is not looked at. In place: the root's `input` is its part.
  void gather(Operand input, std::optional<Operand> output, std::size_t root, Queue queue) const;
  /// Cuts the `input` of rank `root` into a part for every rank and puts each into that rank's `output`; on
  /// other ranks `input` is not looked at. In place: the root's `output` is its part.
  void scatter(std::optional<Operand> input, Operand output, std::size_t root, Queue queue) const;

  /// One message of a batch.
  struct Message {
    Operand operand;
    std::size_t peer;
    bool sends;

    static Message send(Operand operand, std::size_t peer) { return {operand, peer, true}; }
    static Message receive(Operand operand, std::size_t peer) { return {operand, peer, false}; }
  };
  /// Sends and receives all of `messages` as one operation, in which every rank of the group takes part, if
  /// only with none. At most one message to, and one from, each rank. Sizes in bytes are compared
  /// first: where they differ later calls of every rank throw kMismatch, and what was to be received is undefined.
  void batch(const std::vector<Message>& messages, Queue queue) const;

  /// As all_gather, by the copy engines, on a stream of the communicator's own that waits for `queue`: what is
  /// enqueued behind this call runs beside the copies, up to Pending::wait. No multiprocessor moves
  /// data; each of the two barriers is a kernel of one block. Until the end neither operand may be touched.
  ///
  /// Each rank copies from the `input` of the others where that is symmetric or adopted memory, the same
  /// elements of it on every rank; other memory is copied first, into a workspace of as many bytes in the
  /// heap of symmetric memory; so is adopted memory where ranks with GPUs are threads of one process. In place on
  /// every rank or on none. Where the call fails, copies still read the
  /// inputs of others: adopted memory stays allocated until every rank has closed or destroyed its communicator.
  ///
  /// Throws as all_gather; kUnsupported for a stream that its owner captures, and in a capture where the
  /// workspace is too small; kOutOfMemory when the heap has no room for it.
  Pending low_contention_all_gather(Operand input, Operand output, Queue queue) const;
  /// As reduce_scatter, with its bits, by the copy engines, as low_contention_all_gather. Each rank copies the
  /// parts of its `input` to the ranks that reduce them, into a workspace of as many bytes as the input
  /// has; a kernel then reduces them in rank order, the only step that multiprocessors take.
  Pending low_contention_reduce_scatter(Operand input, Operand output, Reduction reduction, Queue queue) const;
  /// Makes a workspace for the two above, for operands of up to `bytes` bytes. Collective; blocks. Without this
  /// the first call that needs more than there is makes it, and is collective and blocks in that; a
  /// captured one is refused. Throws kOutOfMemory when the heap has no such gap, kMismatch when ranks
  /// ask for different sizes.
  void reserve_workspace(std::size_t bytes) const;

  /// Blocks until all work of `stream` is done, then says whether it was done well. Throws the group's
  /// error when a collective gave up, kDevice when work failed.
  void synchronize(const Stream& stream) const;
  /// Lets go of a stream: from here on neither this communicator nor the order of its calls needs it. To
  /// be called before a borrowed stream is destroyed; its work need not be done. Does not block. Throws
  /// kDevice when the runtime refuses to record an event.
  void leave(const Stream& stream) const;
  /// Throws kClosed, or what went wrong first, unless the group is open and well as far as this rank
  /// knows. Does not block.
  void check() const;
  /// Stops the group on every rank: waits on all devices give up within milliseconds and every later call
  /// throws kAborted. Only writes flags: may be called from any thread at any time, more than once.
  void abort() const noexcept;
  /// Closes the group: waits for the device, unmaps what peers share, and leaves in good order.
  /// Collective; blocks. Later calls, also those of buffers' signals and of graphs, throw kClosed; a rank's own
  /// elements may still be read and written. Throws the group's error when it had failed: it is closed all the same.
  void close() const;

  /// Which algorithm serves which size for operands that peers can address (symmetric, adopted) or
  /// cannot, smallest first.
  std::vector<Range> explain(Dtype dtype, bool direct) const;

 private:
  friend class Coordinator;
  explicit Communicator(std::shared_ptr<core::Communicator> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Communicator> core_;
};

}  // namespace symmetra
