/// \file
/// A group of an environment or a standalone group: its ranks and operations, each on the first backend that serves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symmetra/backend.hpp"
#include "symmetra/bootstrap.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/config.hpp"
#include "symmetra/device.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/named.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct Coordinator;
}  // namespace core

/// The settings of a group that Coordinator::open opens.
struct GroupConfig {
  /// The settings of the group's communicator. Equal on every rank.
  Config communicator;
  /// The name of this host. Ranks with equal names share memory. Unset: the system's boot id.
  std::optional<std::string> host = std::nullopt;
  /// The interface for traffic between hosts: an IP address of this host or an interface's name. Unset: from SYMMETRA_INTERFACE. A group on
  /// several hosts needs one.
  std::optional<std::string> interface = std::nullopt;
  /// The only backend that may serve a group of more than one rank: a call that it does not serve throws. Unset: from
  /// SYMMETRA_BACKEND, else the first backend that serves a call. Equal on every rank.
  std::optional<Backend> backend = std::nullopt;
};

/// A group of ranks, on one host or on several, and its operations: a parallel group of an Environment, or a group that
/// open() or split() opened. Move-only. Any thread may use it, but all ranks make the same calls in the same order,
/// from any threads: give each thread that calls independently a group of its own, from split(). Communicator describes
/// the errors otherwise. A group of an Environment may outlive it; when the Environment is closed, every call throws
/// kClosed.
///
/// All ranks of the group make the same calls in the same order. A group of one rank serves every call alone. Roots and peers are numbered
/// in the group.
///
/// Collectives describes the operations. explain() lists the backend of each call, and through() selects one backend. On Backend::kOwn and
/// Backend::kNccl a call enqueues and returns; on Backend::kHost it blocks until its result is complete.
///
/// An operation throws kUnsupported if no backend serves the call, with the group, the operation, the hosts, and each backend's reason.
/// Between hosts, with the group's rank numbers and for good: kPeerLost if a rank died, kTimeout after the deadlines of Config, kBootstrap
/// if a connection broke, kMismatch if ranks call differently, kAborted after abort() on any rank.
class Coordinator : public Collectives {
 public:
  /// Opens one group of all ranks of `bootstrap`, on one host or on several, without the parallel groups of an Environment. Ranks are
  /// numbered as the bootstrap numbers them. Each rank closes the group. Collective; blocks, for Deadlines::open at most.
  ///
  /// If all ranks are on one host, the bootstrap object is destroyed after they have met, else with the group, as for
  /// Environment::init.
  ///
  /// Throws kMismatch if ranks differ in settings; kInvalidArgument for a setting outside its limits or a malformed variable; kUnsupported
  /// for ranks on several hosts, which the message names, without an interface, or in a build with neither NCCL (feature `nccl`) nor an
  /// engine (feature `gloo`); and the errors of Communicator::open.
  static Coordinator open(std::unique_ptr<Bootstrap> bootstrap, const Device& device, const GroupConfig& config = GroupConfig());

  Coordinator(Coordinator&&) noexcept = default;
  Coordinator& operator=(Coordinator&&) noexcept = default;

  /// Ranks with equal colour form a new group, in the order of `key`, then of rank; a rank without colour gets none.
  /// The new group has the settings of this group, numbers its ranks from 0, and does not depend on this group: either
  /// may be closed first. Collective over all ranks of this group; blocks. If a rank fails, so do all, of every colour.
  ///
  /// Throws the errors of open, with rank numbers of this group: kPeerLost at once for a rank of this host that dies meanwhile, and within
  /// Deadlines::open for a rank of another host; kPeer if another rank failed; kClosed, or the group's error if the group has failed.
  std::optional<Coordinator> split(std::optional<std::uint32_t> color, std::int32_t key = 0) const;
  /// Closes a group that open() or split() opened. Later calls on the group and on its communicator throw kClosed. Collective; blocks.
  /// Throws the group's error if the group had failed; the group is closed nevertheless. Throws kUnsupported for a group of an Environment,
  /// which closes its groups.
  void close() const;
  /// Leaves a group that open() or split() opened without the other ranks: see Communicator::depart. Throws the errors
  /// of depart, and kUnsupported for a group of an Environment and for a group that NCCL or the CPU serves, whose ranks
  /// need each other to end.
  void depart() const;

  /// `world`, `tp`, `pp`, `dp` or `ep`; `group` for a group outside an Environment.
  std::string name() const;
  /// The number of this rank in the group.
  std::size_t rank() const;
  std::size_t world_size() const { return ranks().size(); }
  /// The group's ranks in order, by their numbers in the world.
  const std::vector<std::size_t>& ranks() const;
  std::size_t first_rank() const { return ranks().front(); }
  std::size_t last_rank() const { return ranks().back(); }
  /// Whether this is the first rank: in a pipeline, the stage that embeds.
  bool is_first_rank() const { return rank() == 0; }
  /// Whether this is the last rank: in a pipeline, the stage that samples.
  bool is_last_rank() const { return rank() + 1 == world_size(); }
  /// The world's number of the rank after this one; the last rank's is the first.
  std::size_t next_rank() const { return ranks()[(rank() + 1) % world_size()]; }
  /// The world's number of the rank before this one; the first rank's is the last.
  std::size_t previous_rank() const { return ranks()[(rank() + world_size() - 1) % world_size()]; }

  /// The communicator of a group on one host. Groups of the same ranks share one communicator. Throws kUnsupported for a group that spans
  /// hosts: call the coordinator's operations.
  const Communicator& communicator() const;
  /// The communicator of the group's ranks on this host. For a group on one host these are all ranks.
  const Communicator& local() const;
  /// The device of this rank, for its streams and memory.
  Device device() const { return local().device(); }

  /// A coordinator of this group that uses one backend, opened if necessary. A call that the backend does not serve throws kUnsupported.
  /// Every rank must make a call through the same backend. Collective; blocks.
  ///
  /// Throws kMismatch on every rank if they name different backends; nothing changes then. Throws kPeer or this rank's error if the backend
  /// cannot be opened; the group's error if the group has failed. If the backend is not available at all, each call throws instead.
  Coordinator through(Backend backend) const;
  /// A handle of this group whose collective calls carry `tag`, which ranks compare, on every backend: see
  /// Communicator::tagged. Between hosts NCCL compares nothing. Experts on symmetra kernels only use the tag of a
  /// communicator: open them over communicator().
  Coordinator tagged(std::uint64_t tag) const;
  /// The backends in the order of choice, with the calls that each serves and refuses. Equal on every rank of the group.
  std::vector<Explanation> explain() const;

  /// A message to the next rank of the group; the next rank of the last is the first.
  Message to_next(ConstOperand operand) const { return Message::send(operand, (rank() + 1) % world_size()); }
  /// A message from the previous rank of the group; the previous rank of the first is the last.
  Message from_previous(Operand operand) const { return Message::receive(operand, (rank() + world_size() - 1) % world_size()); }
  /// Sends `operand` to the next rank; the last rank sends to the first. This is a whole batch, in which the next rank receives. A rank
  /// that neither sends nor receives calls batch with no message.
  void send_next(ConstOperand operand, Queue queue) const;
  /// Receives `operand` from the previous rank; the first rank receives from the last. This is a whole batch.
  void receive_previous(Operand operand, Queue queue) const;

  /// Sends named tensors and other values of rank `root` to every rank. The other ranks pass null and receive the map, with tensors in new
  /// memory of their device. The root passes its map and receives nothing.
  ///
  /// Blocks until every rank has received names, types and shapes and has allocated memory. Descriptions are sent as an
  /// object of at most 64 MiB less 256 bytes. The tensors follow on `stream`, one broadcast each in the order of names:
  /// use them in stream order. Between hosts the broadcasts block too.
  ///
  /// Throws the errors of broadcast_object and broadcast; kInvalidArgument for a value that is no JSON, a name that is not UTF-8 or a
  /// tensor or stream of another device; kUnsupported while the stream is being captured; kOutOfMemory or kInvalidArgument if this rank
  /// cannot allocate a tensor, with kPeer on the others: nothing is sent then.
  std::optional<NamedValues> broadcast_named(const NamedValues* map, std::size_t root, const Stream& stream) const;

  /// Sends the bytes of rank `root`, at most 64 MiB less 256, to every rank. The other ranks pass null. The bytes are
  /// not interpreted; ranks in Rust read and write CBOR (RFC 8949) here, see docs/protocols.md. Blocks.
  ///
  /// Throws kInvalidArgument for an unknown root, a root without bytes, another rank with bytes, or too many bytes, with kPeer on the other
  /// ranks at once; kMismatch if ranks name different roots or make another collective call; the group's error if the group has failed.
  std::string broadcast_object(const std::string* object, std::size_t root) const;
  /// Collects the bytes of every rank, at most 64 MiB less 256 each, in rank order, at rank `root`. The other ranks get nothing. Blocks.
  /// Throws the errors of broadcast_object.
  std::optional<std::vector<std::string>> gather_object(const std::string& object, std::size_t root) const;
  /// Blocks until every rank of the group has called barrier(). Does not wait for work on streams. Throws the group's
  /// error, kTimeout after Deadlines::open, and kMismatch with the names of both calls if a rank makes another
  /// collective call instead.
  void barrier() const;

  /// Captures a graph on every rank of the group: calls `record` as Stream::capture does, for calls of this group and of groups inside it,
  /// and exchanges new pointers. Every rank gets its graph, or none does. All ranks launch the graph equally often. Collective; blocks.
  ///
  /// Throws the errors of Stream::capture and Graph::register_pointers; kPeer if another rank failed.
  Graph capture(const Stream& stream, const std::function<void(Capture&)>& record) const;
  /// Blocks until all work of `stream` is done. Throws the group's error if a collective gave up, kDevice if work failed,
  /// kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;
  /// Detaches a stream: no backend of the group needs the stream any more, neither for calls nor to close. Call this before destroying a
  /// borrowed stream, on every group that used the stream. Coordinators of one group from through() count as one. The stream's work need
  /// not be done. Does not block. Throws kDevice if the runtime cannot record an event, kInvalidArgument for a stream of
  /// another device.
  void leave(const Stream& stream) const;
  /// Aborts the group on every rank: waits give up, NCCL is aborted, connections between hosts break, and later calls
  /// throw kAborted, on this rank with `reason`, in UTF-8. Any thread may call it, more than once. Blocks for NCCL's
  /// abort, for a call through the CPU on another thread, and, in a group that spans hosts, for at most two seconds in
  /// which the rank requests the cause from the others. Ranks on other hosts receive the reason by that request, which
  /// each environment makes once, for its first group that fails. For a later group, or if some rank does not answer in
  /// time, those ranks throw kBootstrap or another error that they detect.
  void abort(const std::string& reason) const;
  /// Throws kClosed, or the first failure, unless the group is open and every rank is healthy, as far as this rank
  /// knows. Does not block, except once in a failed group that spans hosts, where the rank requests the cause from the
  /// others.
  void check() const;

 private:
  friend class Environment;
  friend class Mixed;
  explicit Coordinator(std::shared_ptr<core::Coordinator> core);

  std::shared_ptr<core::Coordinator> coordinator_;
  Communicator local_;
  std::size_t rank_;
  std::vector<std::size_t> ranks_;
};

}  // namespace symmetra
