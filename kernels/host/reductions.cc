// All-reduce of every type by any reduction.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry any_reduction_kernel<host::Backend>(uint32_t algorithm, uint32_t dtype);

}  // namespace symmetra::kernels
