// Kernels whose machine code the lane `cuda` compares, with and without the feature `timing`.
#include <cuda_runtime.h>

#include "kernels/dispatch.hpp"

namespace symmetra::kernels {

extern const void* const kTimedKernels[];
const void* const kTimedKernels[] = {
    reinterpret_cast<const void*>(&one_shot<Sentinel<Sum<BF16>>, 2>),
    reinterpret_cast<const void*>(&ring<Sum<BF16>>),
    reinterpret_cast<const void*>(&pairs),
};

}  // namespace symmetra::kernels
