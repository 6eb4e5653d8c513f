// The platform that a kernel is compiled for: the only files with intrinsics, inline PTX, scopes and memory orders.
// Every platform defines an equal set of names.
#pragma once
#if __cplusplus < 202002L
#error "the headers of symmetra/device need C++20: -std=c++20"
#endif
#if defined(__CUDACC__)
#include "symmetra/device/platform/cuda.cuh"
#elif defined(__HIP__)
#include "symmetra/device/platform/hip.cuh"
#else
#include "symmetra/device/platform/host.hpp"
#endif
