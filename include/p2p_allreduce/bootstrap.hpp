/// \file
/// How ranks find each other, in the terms of this API.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "symmetra/bootstrap.hpp"
#include "symmetra/error.hpp"

namespace p2p_allreduce {

/// Moves a few bytes between all ranks while memory is set up; once the SymmMemManager stands, all that
/// follows goes over channels of its own. Every rank makes the same calls in the same order, one
/// thread at a time. A call returns when every rank made it, or throws, best after a timeout of its own: the
/// library's deadlines do not reach it.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// Meets the other ranks. Before any other call; more than once does no harm.
  virtual void Initialize() = 0;
  /// Leaves them. Objects made with the bootstrap may outlive it.
  virtual void Finalize() = 0;
  virtual int GetWorldSize() const = 0;
  /// This rank, from 0.
  virtual int GetRank() const = 0;
  /// Gives `sendcount` bytes at `sendbuf` to every rank and stores those of every rank at `recvbuf`, in
  /// rank order: GetWorldSize() x `sendcount` bytes. The two do not overlap.
  virtual void Allgather(const void* sendbuf, void* recvbuf, std::size_t sendcount) = 0;
  /// Blocks until every rank called it.
  virtual void Barrier() = 0;
};

namespace detail {

/// A Bootstrap as the library takes it. Deadlines are the bootstrap's own.
class Meeting final : public symmetra::Bootstrap {
 public:
  /// Throws kInvalidArgument for ranks that cannot be.
  explicit Meeting(p2p_allreduce::Bootstrap& ranks) : ranks_(ranks) {
    const int rank = ranks.GetRank(), world = ranks.GetWorldSize();
    if (world >= 1 && rank >= 0 && rank < world) return;
    throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, "the bootstrap says rank " + std::to_string(rank) + " of " +
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
