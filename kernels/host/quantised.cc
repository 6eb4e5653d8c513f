// All-reduce by codecs.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry quantised_kernel<host::Backend>(const AllReduceArgs& args);

}  // namespace symmetra::kernels
