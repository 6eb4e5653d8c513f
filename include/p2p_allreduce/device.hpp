/// \file
/// What the ranks work on, chosen when the program is compiled: P2P_ALLREDUCE_DEVICE is HIP, CUDA or HOST.
/// Not set, it is HIP where the HIP headers serve AMD devices, CUDA under nvcc, and HOST elsewhere.
///
/// Each room gives the same: the names of HIP that a program of this API uses, and in `detail` the
/// current device and its streams as the library takes them. What depends on the room lies in an inline namespace of
/// its name, so that files of a program which chose different ones do not link instead of taking each other's classes
/// for their own. A program includes p2p_allreduce.hpp where it names a class, and declares none itself.
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
