// The one list of kernels, used by the translation unit of every backend. Sums of the
// element types of language models are specialised, also for 2, 4 and 8 ranks; for the
// rest there is one kernel a type, of any reduction and, as kWorld == 0, any world.
#pragma once
#include "kernels/agree.cuh"
#include "kernels/all_reduce/one_shot.cuh"
#include "kernels/all_reduce/recursive_doubling.cuh"
#include "kernels/all_reduce/ring.cuh"
#include "kernels/all_reduce/two_shot.cuh"
#include "kernels/all_reduce/two_shot_zero_copy.cuh"
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
    case kRing:
      return Backend::template entry<&ring<Element>>();
    case kRecursiveDoubling:
      return Backend::template entry<&recursive_doubling<Element>>();
    default:
      return {};
  }
}

template <class Backend, class ElementType>
typename Backend::Entry sum_kernel(uint32_t algorithm, uint32_t world) {
  if (world == 2) return all_reduce_kernel<Backend, Sum<ElementType>, 2>(algorithm);
  if (world == 4) return all_reduce_kernel<Backend, Sum<ElementType>, 4>(algorithm);
  if (world == 8) return all_reduce_kernel<Backend, Sum<ElementType>, 8>(algorithm);
  return all_reduce_kernel<Backend, Sum<ElementType>, 0>(algorithm);
}

template <class Backend>
typename Backend::Entry any_reduction_kernel(uint32_t algorithm, uint32_t dtype) {
  switch (dtype) {
    case kF32:
      return all_reduce_kernel<Backend, Reduced<F32>, 0>(algorithm);
    case kF64:
      return all_reduce_kernel<Backend, Reduced<F64>, 0>(algorithm);
    case kF16:
      return all_reduce_kernel<Backend, Reduced<F16>, 0>(algorithm);
    case kBF16:
      return all_reduce_kernel<Backend, Reduced<BF16>, 0>(algorithm);
    case kI32:
      return all_reduce_kernel<Backend, Reduced<I32>, 0>(algorithm);
    case kI64:
      return all_reduce_kernel<Backend, Reduced<I64>, 0>(algorithm);
    case kI8:
      return all_reduce_kernel<Backend, Reduced<I8>, 0>(algorithm);
    case kU8:
      return all_reduce_kernel<Backend, Reduced<U8>, 0>(algorithm);
    case kU32:
      return all_reduce_kernel<Backend, Reduced<U32>, 0>(algorithm);
    case kU64:
      return all_reduce_kernel<Backend, Reduced<U64>, 0>(algorithm);
    default:
      return {};
  }
}

template <class Backend>
typename Backend::Entry all_reduce_kernel(uint32_t algorithm, uint32_t dtype, uint32_t reduction, uint32_t world) {
  if (world < 2 || world > kMaxWorld || reduction > kAverage) return {};
  if (reduction == kSum) {
    if (dtype == kF32) return sum_kernel<Backend, F32>(algorithm, world);
    if (dtype == kF16) return sum_kernel<Backend, F16>(algorithm, world);
    if (dtype == kBF16) return sum_kernel<Backend, BF16>(algorithm, world);
  }
  return any_reduction_kernel<Backend>(algorithm, dtype);
}

}  // namespace symmetra::kernels
