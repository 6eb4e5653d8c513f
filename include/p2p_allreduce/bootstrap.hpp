/// \file
/// Bootstraps in the terms of this API: how ranks find each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "symmetra/bootstrap.hpp"
#include "symmetra/error.hpp"

namespace p2p_allreduce {

/// Exchanges small messages between all ranks while memory is set up. Once the SymmMemManager exists, it uses channels
/// of its own. Every rank makes equal calls in equal order, one thread at a time. A call returns when every rank made
/// it, or throws. Give calls a timeout of their own: the library's deadlines do not apply to them.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// Meets the other ranks. Call it before any other function; repeated calls do no harm.
  virtual void Initialize() = 0;
  /// Leaves the other ranks. Objects made with the bootstrap may outlive it.
  virtual void Finalize() = 0;
  virtual int GetWorldSize() const = 0;
  /// This rank, from 0.
  virtual int GetRank() const = 0;
  /// Gathers `sendcount` bytes at `sendbuf` from every rank to `recvbuf`, in rank order: GetWorldSize() x `sendcount`
  /// bytes. The buffers do not overlap.
  virtual void Allgather(const void* sendbuf, void* recvbuf, std::size_t sendcount) = 0;
  /// Blocks until every rank has called it.
  virtual void Barrier() = 0;
};

namespace detail {

/// Adapts a Bootstrap to the library. Deadlines are the bootstrap's own.
class Meeting final : public symmetra::Bootstrap {
 public:
  /// Throws kInvalidArgument for an impossible rank or world size.
  explicit Meeting(p2p_allreduce::Bootstrap& ranks) : ranks_(ranks) {
    const int rank = ranks.GetRank(), world = ranks.GetWorldSize();
    if (world >= 1 && rank >= 0 && rank < world) return;
    throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, "the bootstrap reports rank " + std::to_string(rank) + " of " +
                                                                     std::to_string(world) +
                                                                     ", but there must be one at least: call Initialize() before");
  }
  std::size_t rank() const override { return static_cast<std::size_t>(ranks_.GetRank()); }
  std::size_t world_size() const override { return static_cast<std::size_t>(ranks_.GetWorldSize()); }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline) override { ranks_.Allgather(send, receive, bytes); }
  void barrier(Deadline) override { ranks_.Barrier(); }

 private:
  p2p_allreduce::Bootstrap& ranks_;
};

}  // namespace detail
}  // namespace p2p_allreduce
