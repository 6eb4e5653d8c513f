/// \file
/// Drop-in for programs written to the API of this name: a bootstrap, memory that all ranks address, and all-reduce on
/// streams. Header-only over symmetra's C++ API: link libsymmetra.
///
/// -DP2P_ALLREDUCE_DEVICE=HIP, CUDA or HOST selects the device of the ranks (p2p_allreduce/device.hpp). A program that
/// includes <hip/hip_runtime.h> compiles without HIP when p2p_allreduce/shim is among the include paths. MPIBootstrap
/// exists when <mpi.h> does, as under mpicxx, unless P2P_ALLREDUCE_NO_MPI is defined. All failures are thrown as
/// symmetra::Error.
#pragma once

#include "p2p_allreduce/all_reduce.hpp"
#include "p2p_allreduce/bootstrap.hpp"
#include "p2p_allreduce/device.hpp"
#include "p2p_allreduce/memory.hpp"

#if !defined(P2P_ALLREDUCE_NO_MPI) && __has_include(<mpi.h>)
#include "p2p_allreduce/mpi_bootstrap.hpp"
#else
namespace p2p_allreduce {

template <bool kHasMpi>
class WithoutMpi : public Bootstrap {
#ifdef P2P_ALLREDUCE_NO_MPI
  static_assert(kHasMpi, "MPIBootstrap needs MPI: compile by mpicxx and without P2P_ALLREDUCE_NO_MPI");
#else
  static_assert(kHasMpi, "MPIBootstrap needs <mpi.h>: compile by mpicxx, or name the folder of mpi.h by -I");
#endif
};

/// Fails with the missing requirement if a program instantiates it.
using MPIBootstrap = WithoutMpi<false>;

}  // namespace p2p_allreduce
#endif
