// The kernels of calls by multicast, for kernels/dispatch.hpp.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"
#ifdef SYMMETRA_MULTICASTS
#include "kernels/multicast/range.cuh"
#endif

namespace symmetra::kernels {

#ifdef SYMMETRA_MULTICASTS
template <class Backend, class Element>
typename Backend::Entry multicast_sum_kernel(const MulticastArgs& args) {
  if (args.task == kMulticastSumToAll) return Backend::template entry<&multicast<Element, kMulticastSumToAll>>();
  return Backend::template entry<&multicast<Element, kMulticastSum>>();
}
#endif
/// The kernel of a call by multicast. None where the platform has no such accesses.
template <class Backend>
typename Backend::Entry multicast_kernel([[maybe_unused]] const MulticastArgs& args) {
#ifdef SYMMETRA_MULTICASTS
  if (args.task == kMulticastToAll) return Backend::template entry<&multicast<U8, kMulticastToAll>>();
  switch (args.dtype) {
    case kF32:
      return multicast_sum_kernel<Backend, F32>(args);
    case kF16:
      return multicast_sum_kernel<Backend, F16>(args);
    case kBF16:
      return multicast_sum_kernel<Backend, BF16>(args);
    case kF8E4M3:
      return multicast_sum_kernel<Backend, AddedInF16<F8E4M3>>(args);
    case kF8E5M2:
      return multicast_sum_kernel<Backend, AddedInF16<F8E5M2>>(args);
    case kI32:
    case kU32:  // sums wrap alike
      return multicast_sum_kernel<Backend, U32>(args);
    case kI64:
    case kU64:
      return multicast_sum_kernel<Backend, U64>(args);
    default:
      break;
  }
#endif
  return {};
}

/// Calls `visit` with argument blocks that have all kernels run, until it returns another number than 0; returns that.
template <class Visit>
int32_t each_multicast(MulticastArgs args, Visit visit) {
  for (args.task = 0; args.task < kMulticastTasks; ++args.task) {
    for (args.dtype = 0; args.dtype < kElementTypes; ++args.dtype) {
      if (const int32_t code = visit(args)) return code;
    }
  }
  return 0;
}

}  // namespace symmetra::kernels
