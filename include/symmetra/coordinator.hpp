/// \file
/// A parallel group as an engine uses it: its operations, each on the first backend that serves it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symmetra/backend.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/named.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

/// A parallel group of an Environment: who is in it, and what its ranks do together. Move-only; usable
/// from any thread. It may outlive its Environment, which when closed makes every call throw kClosed.
///
/// All ranks of the group make the same calls in the same order; a group of one rank answers every call by
/// itself. Roots and peers are numbered in the group.
///
/// The operations are those of Communicator, which says what each computes, what operands it takes and
/// what may be in place. explain() says where a call goes, through() sends it elsewhere. On Backend::kOwn and
/// Backend::kNccl a call enqueues and returns; on Backend::kHost it blocks until its result is there.
///
/// All of them throw what Communicator::all_reduce throws, and kUnsupported where no backend serves the call, with
/// the group, the operation, the hosts, and why each backend does not. Between hosts, with the group's
/// numbers and for good: kPeerLost when a rank died, kTimeout after the deadlines of Config, kBootstrap when a
/// connection broke, kMismatch when ranks call differently, kAborted when one called abort().
class Coordinator : public Collectives {
 public:
  Coordinator(Coordinator&&) noexcept = default;
  Coordinator& operator=(Coordinator&&) noexcept = default;

  /// `world`, `tp`, `pp`, `dp` or `ep`.
  std::string name() const;
  /// This rank's number in the group.
  std::size_t rank() const;
  std::size_t world_size() const { return ranks().size(); }
  /// The group's ranks as the world numbers them, in the order of the group.
  const std::vector<std::size_t>& ranks() const;
  std::size_t first_rank() const { return ranks().front(); }
  std::size_t last_rank() const { return ranks().back(); }
  /// Whether this is the first rank: of a pipeline, the stage that embeds.
  bool is_first_rank() const { return rank() == 0; }
  /// Whether this is the last rank: of a pipeline, the stage that samples.
  bool is_last_rank() const { return rank() + 1 == world_size(); }
  /// The rank after this one, going round, as the world numbers it.
  std::size_t next_rank() const { return ranks()[(rank() + 1) % world_size()]; }
  /// The rank before this one, likewise.
  std::size_t previous_rank() const { return ranks()[(rank() + world_size() - 1) % world_size()]; }

  /// What runs the own collectives of a group on one host. Groups of the same ranks share it. Throws
  /// kUnsupported for a group that spans hosts: call its operations here.
  const Communicator& communicator() const;
  /// What runs collectives among the group's ranks on this host: all of them, unless it spans hosts.
  const Communicator& local() const;
  /// The device of this rank, which streams and memory for it are made on.
  Device device() const { return local().device(); }

  /// The same group with one backend, which is opened if need be: a call it does not serve throws
  /// kUnsupported. Collective; blocks. Every rank of the group makes a call through the same backend.
  ///
  /// Throws kMismatch on every rank where they name different backends, and nothing has changed; kPeer or this
  /// rank's error when the backend cannot be opened, though it seemed so; the group's error when it failed. That
  /// it cannot be had at all is the error of each call.
  Coordinator through(Backend backend) const;
  /// The backends in the order they are asked: what each serves, and why it refuses the rest. The same on
  /// every rank of the group.
  std::vector<Explanation> explain() const;

  /// A message to the next rank of the group, going round.
  Message to_next(Operand operand) const { return Message::send(operand, (rank() + 1) % world_size()); }
  /// A message from the rank before, going round.
  Message from_previous(Operand operand) const { return Message::receive(operand, (rank() + world_size() - 1) % world_size()); }
  /// Sends `operand` to the next rank of the group, going round: all that this rank does in a batch in which
  /// that one receives. Ranks with neither part call batch with nothing.
  void send_next(Operand operand, Queue queue) const;
  /// Receives `operand` from the rank before, likewise.
  void receive_previous(Operand operand, Queue queue) const;

  /// Gives named tensors and other values of rank `root` to every rank. The others pass null and receive the map,
  /// with tensors in new memory of their device; the root receives nothing and keeps its own.
  ///
  /// Blocks until every rank knows names, types and shapes and has its memory; these travel as JSON of at most 64
  /// MiB less 256 bytes. The tensors follow, one broadcast each in the order of their names, which is enqueued on
  /// `stream`: use them behind it. Between hosts that blocks as well.
  ///
  /// Throws as broadcast_object and broadcast; kInvalidArgument for a value that is no JSON, a name that is not
  /// UTF-8 or a tensor or stream of another device, kUnsupported while the stream is being captured, kOutOfMemory or
  /// kInvalidArgument when this rank cannot allocate what is sent, and then kPeer on the others: nothing is sent.
  std::optional<NamedValues> broadcast_named(const NamedValues* map, std::size_t root, const Stream& stream) const;

  /// Gives the bytes of rank `root`, at most 64 MiB less 256, to every rank; the others pass null. What they mean is
  /// the program's: ranks in Rust read and write JSON here. Blocks.
  ///
  /// Throws kInvalidArgument for a root there is not, a root without bytes, another rank with some, or too many;
  /// kPeer on the other ranks then, at once. kBootstrap when ranks name different roots; the group's error when it
  /// failed.
  std::string broadcast_object(const std::string* object, std::size_t root) const;
  /// Collects the bytes of every rank, at most 64 MiB less 256 each, in the order of the group, at rank `root`; the
  /// others get nothing. Blocks. Throws as broadcast_object.
  std::optional<std::vector<std::string>> gather_object(const std::string& object, std::size_t root) const;
  /// Blocks until every rank of the group called it. Says nothing about work on streams. Throws the group's
  /// error, kTimeout after Deadlines::open, and kBootstrap when a rank makes another collective call instead.
  void barrier() const;

  /// Captures a graph on every rank of the group: calls `record` as Stream::capture does, with what it enqueues
  /// being of this group and of groups inside it, and exchanges the pointers that are new. Collective; blocks.
  /// Either every rank has its graph, which all launch as often, or none.
  ///
  /// Throws as Stream::capture and Graph::register_pointers; kPeer where another rank failed.
  Graph capture(const Stream& stream, const std::function<void(Capture&)>& record) const;
  /// Blocks until all work of `stream` is done, then says whether it was done well. Throws the group's error
  /// when a collective gave up, kDevice when work failed.
  void synchronize(const Stream& stream) const;
  /// Lets go of a stream: from here on neither the group's calls nor its end need it, whatever backend served them.
  /// To be called before a borrowed stream is destroyed; its work need not be done. Does not block. Every group that
  /// the stream was used with is left for itself, but for those that this one became by through(). Throws kDevice
  /// when the runtime refuses to record an event.
  void leave(const Stream& stream) const;
  /// Ends the group on every rank, and on this one gives `reason`, in UTF-8, in the error: waits give up, NCCL is
  /// aborted, connections between hosts break, and every later call throws kAborted. From any thread, more than once.
  /// Blocks for NCCL's abort, for a call through the CPU that another thread is in, and, in a group that spans hosts,
  /// for two seconds at most in which the other ranks are asked what happened. By that the group's ranks on other
  /// hosts learn the reason. It is asked once an environment, of the first group that fails: of a later one, or where
  /// not every rank of the world answers in time, having failed too, they throw kBootstrap or what else they see of this one.
  void abort(const std::string& reason) const;
  /// Throws kClosed, or what went wrong first, unless the group is open and every rank well, as far as this
  /// rank knows. Does not block, except that a rank of a group that spans hosts asks the others once when it
  /// has failed.
  void check() const;

 private:
  friend class Environment;
  explicit Coordinator(std::shared_ptr<core::Coordinator> core);

  Communicator local_;
  std::size_t rank_;
  std::vector<std::size_t> ranks_;
};

}  // namespace symmetra
