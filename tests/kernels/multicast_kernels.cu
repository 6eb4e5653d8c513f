// Multicast kernels of every kind, as nvcc compiles them with the feature. tests/gpu/sass.py reads the PTX and the machine code.
#include "kernels/multicast/range.cuh"

namespace symmetra::kernels {

template SYMMETRA_KERNEL void multicast<F32, kMulticastSumToAll>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<F16, kMulticastSumToAll>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<BF16, kMulticastSumToAll>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<AddedInF16<F8E4M3>, kMulticastSumToAll>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<AddedInF16<F8E5M2>, kMulticastSum>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<U32, kMulticastSum>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<U64, kMulticastSum>(SYMMETRA_ARGS(MulticastArgs) args);
template SYMMETRA_KERNEL void multicast<U8, kMulticastToAll>(SYMMETRA_ARGS(MulticastArgs) args);

}  // namespace symmetra::kernels
