/// \file
/// Bootstrap by MPI, for programs that are compiled and linked as MPI programs (mpicxx).
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "p2p_allreduce/bootstrap.hpp"

namespace p2p_allreduce {

/// All ranks of MPI_COMM_WORLD, which must be on one host. It uses a communicator of its own, so that its messages
/// never meet the program's. Throws kBootstrap, with MPI's code and description, where MPI is set to return its errors;
/// kTimeout when a rank is missing after the timeout. After a timeout the bootstrap is of no further use and does not
/// finalise MPI, which would wait for that rank.
class MPIBootstrap : public Bootstrap {
 public:
  /// `timeout` limits how long a call waits for the other ranks; MPI's own initialisation is not limited.
  explicit MPIBootstrap(std::chrono::milliseconds timeout = symmetra::bootstrap::kTimeout) : timeout_(timeout) {}
  MPIBootstrap(const MPIBootstrap&) = delete;
  MPIBootstrap& operator=(const MPIBootstrap&) = delete;
  /// Does what Finalize() does, but leaves MPI alone when that fails.
  ~MPIBootstrap() override {
    try {
      leave();
    } catch (const symmetra::Error&) {
    }
  }

  /// Collective. Initialises MPI unless the program did. Throws kBootstrap when MPI was finalised, by the program or by
  /// another bootstrap that had initialised it: MPI starts once per process.
  void Initialize() override {
    if (initialized_) return;
    int ended = 0;
    check("MPI_Finalized", MPI_Finalized(&ended));
    if (ended != 0) {
      throw symmetra::Error(symmetra::ErrorKind::kBootstrap,
                            "Initialize: MPI was finalised: a program with several bootstraps initialises MPI itself");
    }
    int running = 0;
    check("MPI_Initialized", MPI_Initialized(&running));
    if (running == 0) {
      int provided = 0;
      check("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
      owns_mpi_ = true;
    }
    std::unique_ptr<Call> dup = std::make_unique<Call>();
    check("MPI_Comm_idup", MPI_Comm_idup(MPI_COMM_WORLD, &dup->ranks, &dup->request));
    ranks_ = finish("MPI_Comm_idup", std::move(dup))->ranks;
    check("MPI_Comm_size", MPI_Comm_size(ranks_, &world_size_));
    check("MPI_Comm_rank", MPI_Comm_rank(ranks_, &rank_));
    initialized_ = true;
  }

  /// Collective. Finalises MPI only if Initialize() initialised it.
  void Finalize() override { leave(); }

  /// 0 before Initialize().
  int GetWorldSize() const override { return world_size_; }
  int GetRank() const override { return rank_; }

  /// At most INT_MAX bytes per rank. Throws kInvalidArgument for more, and before Initialize().
  void Allgather(const void* sendbuf, void* recvbuf, std::size_t sendcount) override {
    require_initialized("Allgather");
    if (sendcount > INT_MAX) {
      throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, "Allgather: sendcount is " + std::to_string(sendcount) +
                                                                       " bytes, but MPI takes at most " + std::to_string(INT_MAX));
    }
    const int bytes = static_cast<int>(sendcount);
    std::unique_ptr<Call> gather = std::make_unique<Call>();
    const char* const own = static_cast<const char*>(sendbuf);
    gather->sent.assign(own, own + sendcount);
    gather->received.resize(sendcount * static_cast<std::size_t>(world_size_));
    check("MPI_Iallgather",
          MPI_Iallgather(gather->sent.data(), bytes, MPI_BYTE, gather->received.data(), bytes, MPI_BYTE, ranks_, &gather->request));
    gather = finish("MPI_Iallgather", std::move(gather));
    std::copy(gather->received.begin(), gather->received.end(), static_cast<char*>(recvbuf));
  }
  /// Throws kInvalidArgument before Initialize().
  void Barrier() override {
    require_initialized("Barrier");
    std::unique_ptr<Call> barrier = std::make_unique<Call>();
    check("MPI_Ibarrier", MPI_Ibarrier(ranks_, &barrier->request));
    (void)finish("MPI_Ibarrier", std::move(barrier));
  }

 private:
  /// A call in progress, with everything that MPI reads and writes until it is done.
  struct Call {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm ranks = MPI_COMM_NULL;
    std::vector<char> sent, received;
  };

  /// Waits until the call is done. After a timeout nothing can end it, and its buffers are left to MPI for good.
  std::unique_ptr<Call> finish(const char* name, std::unique_ptr<Call> call) {
    Call* const ongoing = call.release();
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    initialized_ = false;
    for (int done = 0;;) {
      check(name, MPI_Test(&ongoing->request, &done, MPI_STATUS_IGNORE));
      if (done != 0) break;
      if (std::chrono::steady_clock::now() > deadline) {
        throw symmetra::Error(symmetra::ErrorKind::kTimeout,
                              std::string(name) + ": not every rank came within " + std::to_string(timeout_.count()) + " ms");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    initialized_ = true;
    return std::unique_ptr<Call>(ongoing);
  }

  void leave() {
    if (!initialized_) return;
    initialized_ = false;
    int gone = 0;
    check("MPI_Finalized", MPI_Finalized(&gone));
    if (gone != 0) return;
    check("MPI_Comm_free", MPI_Comm_free(&ranks_));
    if (owns_mpi_) check("MPI_Finalize", MPI_Finalize());
    owns_mpi_ = false;
  }

  void require_initialized(const char* call) const {
    if (initialized_) return;
    throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, std::string(call) + ": the bootstrap is not initialized");
  }

  static void check(const char* call, int code) {
    if (code == MPI_SUCCESS) return;
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, words, &length);
    throw symmetra::Error(symmetra::ErrorKind::kBootstrap, std::string(call) + ": " + words, code);
  }

  std::chrono::milliseconds timeout_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  int world_size_ = 0;
  int rank_ = 0;
  bool initialized_ = false;
  bool owns_mpi_ = false;
};

}  // namespace p2p_allreduce
