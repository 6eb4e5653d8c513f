// All-reduce of the types that have kernels of their own for sums.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry sum_kernel<host::Backend, F32>(const AllReduceArgs& args);
template host::Entry sum_kernel<host::Backend, F16>(const AllReduceArgs& args);
template host::Entry sum_kernel<host::Backend, BF16>(const AllReduceArgs& args);

}  // namespace symmetra::kernels
