/// \file
/// Bootstraps: how ranks find each other before there is a group.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/toolchain.hpp"

namespace symmetra {

namespace core {
struct Ready;
struct UniqueId;
}  // namespace core

/// Exchanges small messages between all ranks while a group opens. Afterwards the group uses sockets of its own and no
/// longer needs the bootstrap. Implement it with the means of your program (MPI, a store, shared memory), or use one of
/// bootstrap::threads, local, tcp.
///
/// Every rank makes equal calls in equal order, one thread at a time, not always the same thread. A call returns when
/// every rank made it, or throws; after a throw the object is of no further use. An exception reaches the caller of
/// Communicator::open as an Error of kind kBootstrap with the same message. An Error of kind kPeerLost with the dead
/// rank's number stays unchanged: throw it when you know which rank died, because otherwise groups that span hosts
/// (Environment::init) cannot name a rank that died alone on its host. An Error of a ready-made bootstrap keeps its
/// kind.
class Bootstrap {
 public:
  /// When a call should give up. Implementations that cannot may ignore it.
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Bootstrap() = default;
  /// This rank's number, below world_size().
  virtual std::size_t rank() const = 0;
  /// The number of ranks.
  virtual std::size_t world_size() const = 0;
  /// Gathers `bytes` bytes at `send` from every rank to `receive`, in rank order: world_size() x `bytes` bytes. Every
  /// rank passes an equal `bytes` of at least 1. The buffers do not overlap.
  virtual void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) = 0;
  /// Blocks until every rank has called it.
  virtual void barrier(Deadline deadline);

 private:
  friend class Communicator;
  friend class Environment;
  /// The library's own kind of bootstrap; null for a caller's.
  virtual core::Ready* ready() noexcept { return nullptr; }
};

/// Ready-made bootstraps. All throw kTimeout when ranks are missing after `timeout`.
namespace bootstrap {

/// The time for which ready-made bootstraps wait for all ranks.
constexpr std::chrono::seconds kTimeout{120};

/// The bootstraps of `world_size` threads of this process, in rank order; each goes to its own thread. When one is
/// destroyed, waits of the others throw kPeerLost. Throws kInvalidArgument unless `world_size` is 1 to 256. Does not
/// block.
std::vector<std::unique_ptr<Bootstrap>> threads(std::size_t world_size);

/// Ranks of one host and user that meet in a directory, equal on every rank. A missing directory is made with mode
/// 0700. Blocks until every rank is there. Throws kInvalidArgument for an impossible rank or directory, kBootstrap for
/// a rank that was claimed before or another world size.
std::unique_ptr<Bootstrap> local(const std::string& directory, std::size_t rank, std::size_t world_size,
                                 std::chrono::milliseconds timeout = kTimeout);

/// Ranks that meet at a TCP port, by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE as torchrun and `symmetra launch`
/// set them. Where neither RANK nor WORLD_SIZE is set, the variables of mpirun or srun count. SYMMETRA_SECRET (32
/// hexadecimal digits) keeps strangers out; SYMMETRA_BIND names an interface other than loopback. Where torchrun keeps its
/// own store at MASTER_PORT, rank 0 listens at another port that follows from it; SYMMETRA_PORT names one. Blocks. Throws
/// kInvalidArgument naming the variable that is missing or malformed, kBootstrap for a port in use, a rank that was
/// claimed before, another world size or another secret.
std::unique_ptr<Bootstrap> tcp_from_env(std::chrono::milliseconds timeout = kTimeout);

/// A port of this host and a 128-bit secret, as text for the other ranks. Anyone who knows the text can join: treat it
/// as a password. Move-only.
class UniqueId {
 public:
  /// For rank 0: listens at a free port of the loopback interface. Throws kSystem.
  static UniqueId listen();
  /// For rank 0: listens at a free port of `interface`, an IP address of this host or the name of an interface, whose first address counts,
  /// of version 4 if there is one. Ranks on other hosts can join; what the ranks exchange is encrypted. Throws kInvalidArgument if this
  /// host has no such address or interface, with those of the host, and kSystem.
  static UniqueId listen_at(const std::string& interface);
  /// For other ranks: parses the result of text(). Throws kInvalidArgument.
  static UniqueId parse(const std::string& text);

  UniqueId(UniqueId&&) noexcept = default;
  UniqueId& operator=(UniqueId&&) noexcept = default;
  std::string text() const;

 private:
  friend std::unique_ptr<Bootstrap> tcp(UniqueId, std::size_t, std::size_t, std::chrono::milliseconds);
  explicit UniqueId(std::shared_ptr<core::UniqueId> core) : core_(std::move(core)) {}

  std::shared_ptr<core::UniqueId> core_;
};

/// Ranks that meet by a UniqueId: rank 0 passes the listening one, other ranks pass parsed ones. Blocks. Throws the
/// errors of tcp_from_env.
std::unique_ptr<Bootstrap> tcp(UniqueId id, std::size_t rank, std::size_t world_size, std::chrono::milliseconds timeout = kTimeout);

}  // namespace bootstrap
}  // namespace symmetra
