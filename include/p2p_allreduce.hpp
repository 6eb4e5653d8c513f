/// \file
/// Drop-in for programs written to the API of this name: a bootstrap, memory that all ranks address, and all-reduce over
/// streams. Header-only over symmetra's C++ API: link libsymmetra.
///
/// -DP2P_ALLREDUCE_DEVICE=HIP, CUDA or HOST picks what the ranks work on (p2p_allreduce/device.hpp); a program that
/// includes <hip/hip_runtime.h> finds it without HIP when p2p_allreduce/shim is among the include paths. MPIBootstrap
/// is there when <mpi.h> is, as under mpicxx, unless P2P_ALLREDUCE_NO_MPI is defined. All failures are thrown
/// as symmetra::Error.
#pragma once

#include "p2p_allreduce/all_reduce.hpp"
#include "p2p_allreduce/bootstrap.hpp"
#include "p2p_allreduce/device.hpp"
#include "p2p_allreduce/memory.hpp"

#if !defined(P2P_ALLREDUCE_NO_MPI) && __has_include(<mpi.h>)
#include "p2p_allreduce/mpi_bootstrap.hpp"
#endif
