// Exchanges that reduce what they move: reduce-scatter and reduce.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry reducing_kernel<host::Backend>(const ExchangeArgs& args);

}  // namespace symmetra::kernels
