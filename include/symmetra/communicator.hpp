/// \file
/// A group of ranks with memory, which runs collectives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/bootstrap.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/config.hpp"
#include "symmetra/device.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/observe.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct Communicator;
}  // namespace core

/// The algorithm for messages up to a size, and the reason.
struct Range {
  std::uint64_t up_to_bytes;
  Algorithm algorithm;
  std::string reason;
};

/// The ranks of one host that work together, and their memory. Move-only. Any thread may use it, but all ranks make the
/// same calls in the same order, from any threads: give each thread that calls independently a communicator of its own,
/// from split().
///
/// Two threads that call concurrently may order their calls differently on each rank. If two such calls are equal in
/// operation, type and size, they match, and both give wrong results without an error, unless each thread calls through
/// a handle of its own from tagged().
///
/// Calls on one stream run in stream order; a call on another stream waits for the previous call. Collectives enqueue
/// and return: a later call, or synchronize(), throws errors of the device.
///
/// A group fails as a whole: after a rank died, a deadline passed or a rank called abort(), every call on every rank throws the same error,
/// and nothing spins.
///
/// Call close() or depart() before destroying it. The destructor is not collective and does not throw. If it runs after
/// all calls of this rank are done, only calls that need this rank fail on the others; if it runs earlier, the others
/// report this rank as lost. Buffers, registrations and graphs share ownership of the resources that they need and may
/// be destroyed later.
class Communicator : public Collectives {
 public:
  /// Opens a group of all ranks of `bootstrap`, with the memory of the group. `bootstrap` is used only during the
  /// call. Collective; blocks.
  ///
  /// Throws kInvalidArgument for a world size above 16, a rank outside the world or a setting outside its limits (for
  /// a deadline before `bootstrap` is used); kMismatch if ranks differ in world size, version, build, device kind or
  /// settings; kUnsupported if the device cannot share memory, if stores of one rank do not arrive at another, or if
  /// the settings require timing or multicast that is not available; kOutOfMemory if the device cannot hold the
  /// arena; kPeer if another rank cannot take part; kTimeout and kPeerLost if a rank does not answer; kBootstrap if
  /// `bootstrap` throws or two ranks have one number.
  static Communicator open(Bootstrap& bootstrap, const Device& device, const Config& config = Config());

  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;

  /// A handle of this communicator whose collective calls carry `tag`, which ranks compare: the number of a thread, or
  /// of a step. 0 is no tag. Calls with different tags are kMismatch on every rank, with both tags: with
  /// Config::check_calls before the call runs, else at the latest from synchronize(). Copies, signals and messages
  /// between pairs have no tags, because not all ranks make them.
  Communicator tagged(std::uint64_t tag) const;

  std::size_t rank() const;
  std::size_t world_size() const;
  /// The device of this rank, for its streams and memory.
  Device device() const;

  /// Ranks with equal colour form a new group, in the order of `key`, then of rank; a rank without colour gets none. Collective over all
  /// ranks; blocks. If a rank fails, so do all, of every colour. Throws the errors of open.
  std::optional<Communicator> split(std::optional<std::uint32_t> color, std::int32_t key = 0) const;
  /// Blocks until every rank has called it. Does not wait for work on streams. Throws the group's error, kTimeout after
  /// Deadlines::open, and kMismatch with both names if a rank makes another collective call of the host.
  void barrier() const;
  /// Sends `bytes` bytes of host memory at `send` to every rank, and stores the bytes of every rank at `receive`, in
  /// rank order. Not a collective of the device. Blocks. Throws the errors of barrier, kInvalidArgument for null with
  /// bytes, and kMismatch if ranks pass different numbers of bytes.
  void all_gather_bytes(const void* send, void* receive, std::size_t bytes) const;

  /// Allocates a zeroed symmetric buffer of `count` elements. Collective; blocks. The buffer takes memory of the heap,
  /// whose size is Config::heap_bytes: the elements, and 192 bytes for each rank of the group, which are the signals of
  /// the buffer. Both are rounded up to multiples of 256 bytes. Throws kOutOfMemory if the heap has no gap of that
  /// size, kMismatch if ranks request different sizes.
  SymmetricBuffer symmetric(std::size_t count, Dtype dtype) const;
  template <class T>
  SymmetricBuffer symmetric(std::size_t count) const {
    return symmetric(count, DtypeOf<T>::kValue);
  }

  /// Registers the caller's memory, so that peers can address it. All ranks register one buffer of the same size.
  /// Collective; blocks. The library recognises operands by address in the memory, in calls and in graphs. They lie at
  /// one offset on every rank, or go through scratch (Operand::through_scratch), because peers write at their own
  /// offset in the memory of this rank. So an engine can adopt its whole pool once. The memory must stay allocated
  /// until every rank has closed or destroyed its communicator, even if the result is destroyed before: peers still map
  /// the memory, and may still write there after a call that failed. Ranks that are all threads of one process map
  /// nothing: the memory may then be freed once this rank's calls on it have ended without an error, because each call
  /// ends with a barrier after which no peer touches the memory. Throws kInvalidArgument for a null or misaligned
  /// address or memory of another device and kOutOfMemory if all registrations are in use, with kPeer on the other
  /// ranks; kMismatch if the sizes differ.
  Adopted adopt(void* address, std::size_t count, Dtype dtype) const;
  template <class T>
  Adopted adopt(T* address, std::size_t count) const {
    return adopt(static_cast<void*>(address), count, DtypeOf<T>::kValue);
  }
  /// Registers a pool, whose elements have no type yet: an operand of it is Operand(adopted, offset_bytes, count,
  /// dtype), or an address. Equivalent to adopt with `bytes` elements of kU8.
  Adopted adopt_bytes(void* address, std::size_t bytes) const { return adopt(address, bytes, Dtype::kU8); }

  /// Registers the caller's memory that every rank has mapped already, as NVSHMEM, PyTorch's symmetric memory and
  /// FlashInfer do. `peers[r]` is the address by which this rank's device reaches the memory of rank r; that of this
  /// rank is `address`. Nothing is exported or mapped. Collective; blocks. Each address must reach `count` elements
  /// until every rank has closed or destroyed its communicator. Throws kInvalidArgument if the number of addresses is
  /// not the number of ranks, for a null or misaligned address, if the own address is not `address`, and for memory of
  /// another device; kOutOfMemory if all registrations are in use, with kPeer on the other ranks; kMismatch if lengths
  /// or types differ.
  Adopted adopt(void* address, std::size_t count, Dtype dtype, const std::vector<void*>& peers) const;

  /// The memory of all ranks for a kernel that you enqueue on `queue`: the argument of the functions of
  /// symmetra/device/heap.cuh. With them a kernel loads, stores, copies, changes atomically and signals in the
  /// symmetric buffers of any rank. Does not communicate and does not block. Waits of the kernel give up after
  /// Deadlines::steady, or after `deadline`, 1 ms to 24 h; then synchronize() reports the reason. The library does not
  /// order the kernel among the group's calls: order the kernels of the ranks by signals.
  ///
  /// Valid until the communicator is closed. In a capture the graph owns the memory of the group from here on, and its launches are
  /// refused once the communicator is closed or has failed. Throws kInvalidArgument for a stream of another device or a deadline outside
  /// its limits; the group's error if the group has failed or is closed.
  device::Heap heap(Queue queue) const;
  device::Heap heap(std::chrono::milliseconds deadline, Queue queue) const;
  /// Whether links between the devices of all ranks have atomics: kernels then change words of every rank by the functions of
  /// symmetra/device/heap.cuh that add, exchange and compare. Loads, stores, copies and signals need no such links. Equal on all ranks;
  /// true on the CPU, and false where a rank's process does not see the GPU of another.
  bool has_native_atomics() const;

  /// Blocks until all work of `stream` is done. Throws the group's error if a collective gave up, kDevice if work failed, kMismatch if
  /// the ranks made different calls, kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;
  /// Compares the guards of this rank's memory, which Config::guard_bytes places; without guards there is nothing to
  /// compare. Blocks. Call this when the work of all ranks is done, for example after synchronize and a barrier; close
  /// compares them too. Throws kInternal for an overwritten guard, with the number of bytes and their place.
  void check_guards() const;
  /// Writes the last calls of this rank as JSON into a folder, which is made if it is missing, and returns the path of the file.
  /// `symmetra postmortem` merges the files of all ranks. Any thread may call it, also after a failure. Blocks for the write
  /// alone. Throws kSystem if the file cannot be written.
  std::string dump(const std::string& folder) const;
  /// The times of this rank's last calls, at most 4096, by operation, size class and algorithm, and the share of each that was
  /// waiting for another rank. Counts a call of a graph at each replay, and each launch of a call that takes several launches.
  /// Does not count the last call unless a `synchronize` followed, calls that copy engines or NCCL run, and calls in a group of one
  /// rank. Does not block, and any thread may call it. Throws kUnsupported if the group was opened without Config::timing.
  Timings timings() const;
  /// Detaches a stream: the communicator and the order of its calls no longer need the stream. Call this before destroying a borrowed
  /// stream. The stream's work need not be done. Does not block. Throws kDevice if the runtime cannot record an event,
  /// kInvalidArgument for a stream of another device.
  void leave(const Stream& stream) const;
  /// Throws kClosed, or the first failure, unless the group is open and healthy as far as this rank knows. Does not block.
  void check() const;
  /// Stops the group on every rank: waits on all devices give up within milliseconds, and later calls throw kAborted. Only writes flags:
  /// any thread may call it at any time, more than once. Does nothing once this rank has closed the group or departed from it.
  void abort() const noexcept;
  /// Closes the group: waits for the device, unmaps shared memory, and ends the connections to the other ranks. Collective; blocks. Later
  /// calls throw kClosed, also those of buffers' signals and of graphs; a rank's own elements may still be read and written. Throws the
  /// group's error if the group had failed; the group is closed nevertheless.
  void close() const;
  /// Leaves the group without the other ranks: waits for this rank's device, as close() does. Does not communicate: it
  /// blocks for peers only if work on the device, also of another group, waits for them. Later calls throw kClosed, as
  /// after close(). The peers keep the memory that they have mapped.
  ///
  /// The group continues: finished work of the peers stays valid, and their idle group stays healthy. A later call of a
  /// peer that needs this rank throws kPeerLost with ": it left in good order"; close() is such a call, so peers of a
  /// departed rank depart too. Ranks may depart in any order, and a process may end afterwards. Memory that this rank
  /// shares with other processes, by a registered graph or by adopt(), must stay allocated. Launches of natively
  /// captured graphs must be done, and no thread may be in a collective call of the host, such as symmetric().
  ///
  /// Throws the group's error if the group had failed or if one of this rank's calls fails, which ends at its deadline at the latest;
  /// kMismatch if the ranks made different calls: the rank has left nevertheless, and the others learn of the failure. Throws kClosed if
  /// the communicator is closed.
  void depart() const;
  /// Leaves the group without the other ranks and without a wait: calls of this rank that are under way give up, and later
  /// calls throw kClosed. Contents that the calls under way would have written are undefined. Returns at once, from any
  /// thread; another thread then notifies the peers, and frees memory when the work of this communicator has ended.
  ///
  /// Peers without a call that needs this rank stay well, as after depart(). On a peer that has made such a call, the call
  /// and later ones throw kPeerLost. If messages between pairs or launches of natively captured graphs are cut off, or if
  /// the work does not end within a second, the group fails on all peers, as by abort(). Operands must live until the work
  /// is done; lent streams may be destroyed before.
  void abandon() const;

  /// The algorithm of all_reduce for each range of message sizes in bytes, smallest first. `direct`: whether peers can
  /// address both operands (symmetric or registered memory). Does not block.
  std::vector<Range> explain(Dtype dtype, bool direct) const;
  /// The algorithms of all_reduce_norm for rows of `hidden` elements, by the bytes of all rows, smallest first, for
  /// calls in which the sum has a place: an output that is not padded, or a residual_out that is not the residual.
  /// `direct`: whether peers can address the operands (symmetric or registered memory).
  std::vector<Range> explain_norm(Dtype dtype, std::size_t hidden, bool direct) const;
  /// The algorithms of all_reduce_norm for rows of `hidden` elements that are written quantised, by the bytes of all
  /// rows, smallest first. `direct`: whether peers can address the operands (symmetric or registered memory). `placed`:
  /// whether the call also has a place for the sum of all rows: an output that is not padded, or a residual_out that is
  /// not the residual. `width`: elements of an output row, as RowNorm::width; 0: `hidden`. Throws kInvalidArgument for
  /// a width below `hidden`, and for a format or a layout that rows of `width` elements do not support; kUnsupported if
  /// no algorithm serves: without a place for the sum, a row must fit the scratch of the two-shot.
  std::vector<Range> explain_norm(Dtype dtype, std::size_t hidden, const QuantisedForm& form, bool direct, bool placed,
                                  std::size_t width = 0) const;
  /// The algorithms of reduce_scatter_norm or, with `gathers`, of reduce_scatter_norm_all_gather, for rows of `hidden`
  /// elements, by the bytes of all rows, smallest first, for calls with an output that is not padded. Algorithm::kAuto
  /// stands for separate collectives and kernels. `quantised`: whether the rows are written quantised. `direct`:
  /// whether peers can address the input and all gathered outputs (symmetric or registered memory).
  std::vector<Range> explain_scattered_norm(Dtype dtype, std::size_t hidden, bool quantised, bool direct, bool gathers) const;

 private:
  friend class Coordinator;
  friend class Experts;
  friend class nvshmem::Session;
  explicit Communicator(std::shared_ptr<core::Communicator> core);

  std::shared_ptr<core::Communicator> communicator_;
};

}  // namespace symmetra
