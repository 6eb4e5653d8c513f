// Calls by multicast.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry multicast_kernel<host::Backend>(const MulticastArgs& args);

}  // namespace symmetra::kernels
