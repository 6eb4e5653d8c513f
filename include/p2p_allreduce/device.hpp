/// \file
/// The device of the ranks, chosen at compile time: P2P_ALLREDUCE_DEVICE is HIP, CUDA or HOST. Unset, it is HIP where
/// the HIP headers serve AMD devices, CUDA under nvcc, and HOST elsewhere.
///
/// Each device header gives the HIP names that a program of this API uses, and in `detail` the current device and its
/// streams for the library. Device-dependent classes lie in an inline namespace named after the device, so that files
/// of a program that chose different devices fail to link instead of mixing classes. A program includes
/// p2p_allreduce.hpp where it names a class, and declares none itself.
#pragma once

#define P2P_ALLREDUCE_JOIN(left, right) left##right
#define P2P_ALLREDUCE_NUMBER(name) P2P_ALLREDUCE_JOIN(P2P_ALLREDUCE_ON_, name)
#define P2P_ALLREDUCE_ON_HIP 1
#define P2P_ALLREDUCE_ON_CUDA 2
#define P2P_ALLREDUCE_ON_HOST 3

#ifndef P2P_ALLREDUCE_DEVICE
#if defined(__HIP_PLATFORM_AMD__)
#define P2P_ALLREDUCE_DEVICE HIP
#elif defined(__CUDACC__)
#define P2P_ALLREDUCE_DEVICE CUDA
#else
#define P2P_ALLREDUCE_DEVICE HOST
#endif
#endif

#if P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == 1
#define P2P_ALLREDUCE_ROOM on_hip
#include "p2p_allreduce/device/hip.hpp"
#elif P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == 2
#define P2P_ALLREDUCE_ROOM on_cuda
#include "p2p_allreduce/device/cuda.hpp"
#elif P2P_ALLREDUCE_NUMBER(P2P_ALLREDUCE_DEVICE) == 3
#define P2P_ALLREDUCE_ROOM on_host
#include "p2p_allreduce/device/host.hpp"
#else
#error "P2P_ALLREDUCE_DEVICE must be HIP, CUDA or HOST"
#endif
