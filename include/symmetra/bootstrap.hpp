/// \file
/// How ranks find each other before there is a group.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace symmetra {

namespace core {
struct Ready;
struct UniqueId;
}  // namespace core

/// Moves a few bytes between all ranks while a group opens; afterwards the group speaks over sockets
/// of its own and needs it no more. Implement it over what your program has (MPI, a store, shared
/// memory), or take one of bootstrap::threads, local, tcp.
///
/// Every rank makes the same sequence of calls, one thread at a time, not always the same thread. A call returns when every rank
/// made it, or throws; after that the object is of no further use. Whatever it throws reaches the
/// caller of Communicator::open as an Error of kind kBootstrap with the same message, except that an Error of
/// kind kPeerLost with the rank that died stays one: throw it where you know who did, or groups that span
/// hosts (Environment::init) cannot name a rank that died alone on its host. An Error of the ready-made ones
/// keeps its kind.
class Bootstrap {
 public:
  /// When a call should have given up. Implementations that cannot may ignore it.
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Bootstrap() = default;
  /// This rank, below world_size().
  virtual std::size_t rank() const = 0;
  /// How many ranks there are.
  virtual std::size_t world_size() const = 0;
  /// Gives `bytes` bytes at `send` to every rank and stores those of every rank at `receive`, in
  /// rank order, world_size() x `bytes` in all. The same `bytes`, at least 1, on every rank; the two do
  /// not overlap.
  virtual void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) = 0;
  /// Blocks until every rank called it.
  virtual void barrier(Deadline deadline);

 private:
  friend class Communicator;
  friend class Environment;
  /// The library's own kind of bootstrap; null for the caller's.
  virtual core::Ready* ready() noexcept { return nullptr; }
};

/// Ready-made bootstraps. All throw kTimeout when ranks are missing after `timeout`.
namespace bootstrap {

/// How long the ready-made ones wait for all ranks to come.
constexpr std::chrono::seconds kTimeout{120};

/// All ranks of a world of threads of this process, in order: each goes to a thread of its own. One
/// that is destroyed makes the waits of the others throw kPeerLost. Throws kInvalidArgument unless
/// `world_size` is 1 to 256. Does not block.
std::vector<std::unique_ptr<Bootstrap>> threads(std::size_t world_size);

/// Ranks of one host and user that meet in a directory, the same on every rank; made with mode 0700
/// where it is missing. Blocks until every rank is there. Throws kInvalidArgument for a rank or
/// directory that cannot be, kBootstrap for a rank that was claimed before or another world size.
std::unique_ptr<Bootstrap> local(const std::string& directory, std::size_t rank, std::size_t world_size,
                                 std::chrono::milliseconds timeout = kTimeout);

/// Ranks that meet at a TCP port, by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE as torchrun and
/// `symmetra launch` set them; SYMMETRA_SECRET (32 hexadecimal digits) keeps strangers out, and
/// SYMMETRA_BIND names an interface other than loopback. Blocks. Throws kInvalidArgument naming the
/// variable that is missing or malformed, kBootstrap for a port in use, a rank that was claimed before,
/// another world size or secret.
std::unique_ptr<Bootstrap> tcp_from_env(std::chrono::milliseconds timeout = kTimeout);

/// A port of this host and a 128-bit secret, as text to hand to the other ranks. Who knows it can
/// join: treat it as a password. Move-only.
class UniqueId {
 public:
  /// For rank 0: listens at a free port of the loopback interface. Throws kSystem.
  static UniqueId listen();
  /// For the others: reads what text() gave. Throws kInvalidArgument.
  static UniqueId parse(const std::string& text);

  UniqueId(UniqueId&&) noexcept = default;
  UniqueId& operator=(UniqueId&&) noexcept = default;
  std::string text() const;

 private:
  friend std::unique_ptr<Bootstrap> tcp(UniqueId, std::size_t, std::size_t, std::chrono::milliseconds);
  explicit UniqueId(std::shared_ptr<core::UniqueId> core) : core_(std::move(core)) {}

  std::shared_ptr<core::UniqueId> core_;
};

/// Ranks that meet by a UniqueId: rank 0 gives the one that listens, the others parsed ones. Blocks.
/// Throws as tcp_from_env.
std::unique_ptr<Bootstrap> tcp(UniqueId id, std::size_t rank, std::size_t world_size, std::chrono::milliseconds timeout = kTimeout);

}  // namespace bootstrap
}  // namespace symmetra
