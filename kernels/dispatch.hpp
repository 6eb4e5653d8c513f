// The one list of kernels, used by the translation unit of every backend. Specialised
// for 2, 4 and 8 ranks and the element types of language models; one generic kernel,
// kWorld == 0, for the rest.
#pragma once
#include "kernels/agree.cuh"
#include "kernels/all_reduce/one_shot.cuh"
#include "kernels/all_reduce/two_shot.cuh"
#include "kernels/all_reduce/two_shot_zero_copy.cuh"
#include "kernels/probe/probe.cuh"
#include "kernels/signal/signal.cuh"

namespace symmetra::kernels {

/// `Backend::entry<kernel>()` is how a backend names a kernel; a null Backend::Entry: none.
template <class Backend, class Element, uint32_t kWorld>
typename Backend::Entry all_reduce_kernel(uint32_t algorithm) {
  switch (algorithm) {
    case kOneShotLL:
      return Backend::template entry<&one_shot<LL<Element>, kWorld>>();
    case kOneShotSentinel:
      if constexpr (Element::kFloating) return Backend::template entry<&one_shot<Sentinel<Element>, kWorld>>();
      return {};
    case kTwoShotLL:  // of use for integers only, which are generic
      return Backend::template entry<&two_shot<LL<Element>, 0>>();
    case kTwoShotSentinel:
      if constexpr (Element::kFloating) return Backend::template entry<&two_shot<Sentinel<Element>, kWorld>>();
      return {};
    case kTwoShotZeroCopy:
      return Backend::template entry<&two_shot_zero_copy<Element, kWorld>>();
    default:
      return {};
  }
}

template <class Backend, class Element>
typename Backend::Entry all_reduce_kernel(uint32_t algorithm, uint32_t world) {
  if (world < 2 || world > kMaxWorld) return {};
  if constexpr (Element::kSpecialised) {
    if (world == 2) return all_reduce_kernel<Backend, Element, 2>(algorithm);
    if (world == 4) return all_reduce_kernel<Backend, Element, 4>(algorithm);
    if (world == 8) return all_reduce_kernel<Backend, Element, 8>(algorithm);
  }
  return all_reduce_kernel<Backend, Element, 0>(algorithm);
}

template <class Backend>
typename Backend::Entry all_reduce_kernel(uint32_t algorithm, uint32_t dtype, uint32_t world) {
  switch (dtype) {
    case kF32:
      return all_reduce_kernel<Backend, F32>(algorithm, world);
    case kF64:
      return all_reduce_kernel<Backend, F64>(algorithm, world);
    case kF16:
      return all_reduce_kernel<Backend, F16>(algorithm, world);
    case kBF16:
      return all_reduce_kernel<Backend, BF16>(algorithm, world);
    case kI32:
      return all_reduce_kernel<Backend, I32>(algorithm, world);
    case kI64:
      return all_reduce_kernel<Backend, I64>(algorithm, world);
    default:
      return {};
  }
}

}  // namespace symmetra::kernels
