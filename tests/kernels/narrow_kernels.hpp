// Comparisons of the chip's conversions of narrow formats with integer arithmetic. Each adds to `*wrong`, in memory of
// the current GPU, how often both differ, and runs on the default stream.
#pragma once
#include <cuda_runtime.h>

namespace trial {

/// All floats, in both places of a pair.
cudaError_t count_e4m3(unsigned long long* wrong);
/// All floats, in both places of a pair.
cudaError_t count_e5m2(unsigned long long* wrong);
/// All floats, in both places of a pair.
cudaError_t count_e2m1(unsigned long long* wrong);
/// All pairs of codes of e4m3.
cudaError_t count_e4m3_values(unsigned long long* wrong);

}  // namespace trial
