/// \file
/// Ranks that meet by MPI. For programs that are compiled and linked as MPI programs (mpicxx).
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <string>

#include "p2p_allreduce/bootstrap.hpp"

namespace p2p_allreduce {

/// All ranks of MPI_COMM_WORLD, which must be on one host. Speaks on a communicator of its own, so that
/// its messages never meet the program's. Throws kBootstrap, with MPI's code and words, where MPI
/// is told to return its errors.
class MPIBootstrap : public Bootstrap {
 public:
  MPIBootstrap() = default;
  MPIBootstrap(const MPIBootstrap&) = delete;
  MPIBootstrap& operator=(const MPIBootstrap&) = delete;
  /// As Finalize(), but leaves MPI alone when that fails.
  ~MPIBootstrap() override {
    try {
      leave();
    } catch (const symmetra::Error&) {
    }
  }

  /// Collective. Initialises MPI unless the program did.
  void Initialize() override {
    if (initialized_) return;
    int running = 0;
    check("MPI_Initialized", MPI_Initialized(&running));
    if (running == 0) {
      int provided = 0;
      check("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
      owns_mpi_ = true;
    }
    check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &ranks_));
    check("MPI_Comm_size", MPI_Comm_size(ranks_, &world_size_));
    check("MPI_Comm_rank", MPI_Comm_rank(ranks_, &rank_));
    initialized_ = true;
  }

  /// Collective. Finalises MPI only where Initialize() initialised it.
  void Finalize() override { leave(); }

  /// 0 before Initialize().
  int GetWorldSize() const override { return world_size_; }
  int GetRank() const override { return rank_; }

  /// At most INT_MAX bytes a rank. Throws kInvalidArgument for more, and before Initialize().
  void Allgather(const void* sendbuf, void* recvbuf, std::size_t sendcount) override {
    require_initialized("Allgather");
    if (sendcount > INT_MAX) {
      throw symmetra::Error(symmetra::ErrorKind::kInvalidArgument, "Allgather: sendcount is " + std::to_string(sendcount) +
                                                                       " bytes, but MPI takes at most " + std::to_string(INT_MAX));
    }
    const int bytes = static_cast<int>(sendcount);
    check("MPI_Allgather", MPI_Allgather(sendbuf, bytes, MPI_BYTE, recvbuf, bytes, MPI_BYTE, ranks_));
  }
  /// Throws kInvalidArgument before Initialize().
  void Barrier() override {
    require_initialized("Barrier");
    check("MPI_Barrier", MPI_Barrier(ranks_));
  }

 private:
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

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int world_size_ = 0;
  int rank_ = 0;
  bool initialized_ = false;
  bool owns_mpi_ = false;
};

}  // namespace p2p_allreduce
