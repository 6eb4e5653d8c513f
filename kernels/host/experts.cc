// Kernels of experts.
#include "kernels/host/backend.hpp"

namespace symmetra::kernels {

template host::Entry experts_kernel<host::Backend>(const RouteArgs& args);
template host::Entry experts_kernel<host::Backend>(const MoveArgs& args);
template host::Entry experts_kernel<host::Backend>(const PushArgs& args);
template host::Entry experts_kernel<host::Backend>(const SendArgs& args);
template host::Entry experts_kernel<host::Backend>(const ReceiveArgs& args);
template host::Entry experts_kernel<host::Backend>(const CombineArgs& args);
template host::Entry experts_kernel<host::Backend>(const CombineDirectArgs& args);
template host::Entry experts_kernel<host::Backend>(const CombinePacketArgs& args);

}  // namespace symmetra::kernels
