// Norms of rows, alone and fused with an all-reduce.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry summed_norm_kernel<host::Backend>(const NormArgs& args);
template host::Entry fused_norm_kernel<host::Backend>(const FusedNormArgs& args);

}  // namespace symmetra::kernels
