// All-reduce of every type by any reduction.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry any_reduction_kernel<host::Backend>(const AllReduceArgs& args);

}  // namespace symmetra::kernels
