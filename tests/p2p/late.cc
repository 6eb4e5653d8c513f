// A rank that comes late to a meeting by MPI, for mpirun with two ranks at least: the others do not wait for it longer
// than the timeout that they gave. Each rank prints `rank R ok`.
#include "program.hpp"

#ifndef MPI_VERSION
#error "compile it as an MPI program"
#endif

int main() {
  using std::chrono::milliseconds;
  CHECK(MPI_Init(nullptr, nullptr) == MPI_SUCCESS);
  int rank = 0;
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
  const bool late = rank == 1;
  for (int step = 0; step < 3; ++step) {
    MPIBootstrap bootstrap(milliseconds(late ? 60'000 : 300));
    if (step > 0) bootstrap.Initialize();
    const auto call = [&] {
      char here = 'h', all[64];
      if (step == 0) bootstrap.Initialize();
      if (step == 1) bootstrap.Allgather(&here, all, 1);
      if (step == 2) bootstrap.Barrier();
    };
    const auto start = std::chrono::steady_clock::now();
    if (late) {
      std::this_thread::sleep_for(milliseconds(1500));
      call();
    } else {
      REFUSED(kTimeout, "within 300 ms", call());
      CHECK(std::chrono::steady_clock::now() - start < milliseconds(1400));
      REFUSED(kInvalidArgument, "not initialized", bootstrap.Barrier());
    }
    // The program's messages do not mix with those of the bootstrap; here all ranks meet again.
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  }
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  std::printf("rank %d ok\n", rank);
}
