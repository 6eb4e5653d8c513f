// Norms of rows, alone and fused with an all-reduce.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry summed_norm_kernel<host::Backend>(const NormArgs& args);
template host::Entry fused_norm_kernel<host::Backend>(const FusedNormArgs& args);
template host::Entry summed_norm_kernel<host::Backend>(const LayerNormArgs& args);
template host::Entry fused_norm_kernel<host::Backend>(const FusedLayerNormArgs& args);

}  // namespace symmetra::kernels
