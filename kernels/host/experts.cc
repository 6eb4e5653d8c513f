// Kernels of experts.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry experts_kernel<host::Backend>(const ExpertArgs& args);

}  // namespace symmetra::kernels
