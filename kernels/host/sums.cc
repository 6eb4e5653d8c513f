// All-reduce of the types that have kernels of their own for sums.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry sum_kernel<host::Backend, F32>(uint32_t algorithm, uint32_t world);
template host::Entry sum_kernel<host::Backend, F16>(uint32_t algorithm, uint32_t world);
template host::Entry sum_kernel<host::Backend, BF16>(uint32_t algorithm, uint32_t world);

}  // namespace symmetra::kernels
