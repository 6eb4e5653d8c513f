// Atomic accesses with an order and a scope, for words of 4 and 8 bytes. Every platform defines an equal set of names. The
// library's own kernels include none of it.
#pragma once
#if defined(__CUDACC__)
#include "symmetra/device/platform/cuda_atomics.cuh"
#elif defined(__HIP__)
#include "symmetra/device/platform/hip_atomics.cuh"
#else
#include "symmetra/device/platform/host_atomics.hpp"
#endif
