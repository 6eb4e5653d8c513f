// The only list of kernels, used by the translation unit of every backend. Sums of the element types of language models
// are specialised, also for 2, 4 and 8 ranks. Every other type has one kernel for all reductions and, as kWorld == 0,
// all world sizes. So has each codec.
#pragma once
#include <concepts>
#include <type_traits>

#include "kernels/agree.cuh"
#include "kernels/all_reduce/one_shot.cuh"
#include "kernels/all_reduce/quantised.cuh"
#include "kernels/all_reduce/recursive_doubling.cuh"
#include "kernels/all_reduce/ring.cuh"
#include "kernels/all_reduce/two_shot.cuh"
#include "kernels/all_reduce/two_shot_zero_copy.cuh"
#include "kernels/exchange/counts.cuh"
#include "kernels/exchange/direct.cuh"
#include "kernels/exchange/escaped.cuh"
#include "kernels/exchange/once.cuh"
#include "kernels/exchange/packets.cuh"
#include "kernels/exchange/pairs.cuh"
#include "kernels/exchange/reduce.cuh"
#include "kernels/exchange/relay.cuh"
#include "kernels/exchange/scale.cuh"
#include "kernels/exchange/sentinels.cuh"
#include "kernels/experts/dispatch.hpp"
#include "kernels/geometry.hpp"
#include "kernels/multicast/kernels.cuh"
#include "kernels/norm/gather.cuh"
#include "kernels/norm/local.cuh"
#include "kernels/norm/one_shot.cuh"
#include "kernels/norm/two_shot.cuh"
#include "kernels/probe/heap.cuh"
#include "kernels/probe/probe.cuh"
#include "kernels/signal/signal.cuh"

namespace symmetra::kernels {

/// `Backend::entry<kernel>()` is how a backend names a kernel; a null Backend::Entry: none. `Backend::kThreadAnItem`:
/// its blocks have a thread for every item.
template <class Backend, class Element, uint32_t kWorld>
typename Backend::Entry element_kernel(const AllReduceArgs& args) {
  switch (args.algorithm) {
    case kOneShotLL:
      return Backend::template entry<&one_shot<LL<Element>, kWorld>>();
    case kOneShotSentinel:
      if constexpr (Element::kFloating) return Backend::template entry<&one_shot<Sentinel<Element>, kWorld>>();
      return {};
    case kTwoShotLL:  // useful for integers only, which are generic
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

/// Reduce-scatter and reduce.
template <class Backend, class Element, uint32_t kWorld>
typename Backend::Entry element_kernel(const ExchangeArgs& args) {
  if (args.algorithm == kReduceSentinels) {
    if constexpr (Element::kFloating) {
      if (is_whole(args, 16)) return Backend::template entry<&reduce_sentinels<Sentinel<Element>, kWorld, Whole<Words<4>>>>();
      return Backend::template entry<&reduce_sentinels<Sentinel<Element>, kWorld, Strip<Words<4>>>>();
    }
    return {};
  }
  if (in_one_round(args)) return Backend::template entry<&reduce_once<LL<Element>, kWorld>>();
  if (args.algorithm == kReducePackets) return Backend::template entry<&reduce_packets<LL<Element>, kWorld>>();
  if (args.algorithm == kReduceLocal) return Backend::template entry<&reduce_local<Pulled<Element, kWorld, Brought>>>();
  return Backend::template entry<&exchange_direct<Pulled<Element, kWorld>>>();
}

template <class Backend, class ElementType, class Args>
typename Backend::Entry sum_kernel(const Args& args) {
  if (has_several_results(args)) return element_kernel<Backend, Sum<ElementType>, 0>(args);
  if (args.world == 2) return element_kernel<Backend, Sum<ElementType>, 2>(args);
  if (args.world == 4) return element_kernel<Backend, Sum<ElementType>, 4>(args);
  if (args.world == 8) return element_kernel<Backend, Sum<ElementType>, 8>(args);
  return element_kernel<Backend, Sum<ElementType>, 0>(args);
}

template <class Backend, class Args>
typename Backend::Entry any_reduction_kernel(const Args& args) {
  switch (args.dtype) {
    case kF32:
      return element_kernel<Backend, Reduced<F32>, 0>(args);
    case kF64:
      return element_kernel<Backend, Reduced<F64>, 0>(args);
    case kF16:
      return element_kernel<Backend, Reduced<F16>, 0>(args);
    case kBF16:
      return element_kernel<Backend, Reduced<BF16>, 0>(args);
    case kI32:
      return element_kernel<Backend, Reduced<I32>, 0>(args);
    case kI64:
      return element_kernel<Backend, Reduced<I64>, 0>(args);
    case kI8:
      return element_kernel<Backend, Reduced<I8>, 0>(args);
    case kU8:
      return element_kernel<Backend, Reduced<U8>, 0>(args);
    case kU32:
      return element_kernel<Backend, Reduced<U32>, 0>(args);
    case kU64:
      return element_kernel<Backend, Reduced<U64>, 0>(args);
    case kF8E4M3:
      return element_kernel<Backend, Reduced<F8E4M3>, 0>(args);
    case kF8E5M2:
      return element_kernel<Backend, Reduced<F8E5M2>, 0>(args);
    default:
      return {};
  }
}

/// The kernel of a call that reduces, by its element type, reduction and world size.
template <class Backend, class Args>
typename Backend::Entry reducing_kernel(const Args& args) {
  if (args.reduction > kAverage) return {};
  if (args.reduction == kSum) {
    if (args.dtype == kF32) return sum_kernel<Backend, F32>(args);
    if (args.dtype == kF16) return sum_kernel<Backend, F16>(args);
    if (args.dtype == kBF16) return sum_kernel<Backend, BF16>(args);
  }
  return any_reduction_kernel<Backend>(args);
}

template <class Backend>
typename Backend::Entry exchange_kernel(const ExchangeArgs& args) {
  switch (args.algorithm) {
    case kReducePackets:
    case kReduceSentinels:
    case kReducePull:
    case kReduceLocal:
      return reducing_kernel<Backend>(args);
    case kExchangePackets:
      if (in_one_round(args)) return Backend::template entry<&exchange_once<LL<I64>>>();
      return Backend::template entry<&exchange_packets<LL<I64>>>();
    case kRelayPackets:
      if (relays_whole(args)) return Backend::template entry<&relay_packets<LL<I64>, Whole<Words<2>>>>();
      return Backend::template entry<&relay_packets<LL<I64>, Strip<Words<2>>>>();
    case kExchangeEscaped:
      if (is_whole(args, 16)) return Backend::template entry<&exchange_escaped<Whole<Words<4>>>>();
      return Backend::template entry<&exchange_escaped<Strip<Words<4>>>>();
    case kExchangePush:
      return Backend::template entry<&exchange_direct<Copies>>();
    case kExchangeRelay:
      return Backend::template entry<&exchange_direct<Relay>>();
    default:
      return {};
  }
}

/// The kernel of an all-reduce with a codec: one for both reductions and all world sizes.
template <class Backend>
typename Backend::Entry quantised_kernel(const AllReduceArgs& args) {
  const bool two_shot = args.algorithm == kTwoShotSentinel;
  if ((!two_shot && args.algorithm != kOneShotSentinel) || codec_bits(args.codec) == 0) return {};
  return with_code(args.codec, [&](auto code) -> typename Backend::Entry {
    using Code = decltype(code);
    switch (args.dtype) {
      case kF16:
        if (two_shot) return Backend::template entry<&quantised_two_shot<F16, Code>>();
        return Backend::template entry<&quantised_one_shot<F16, Code>>();
      case kBF16:
        if (two_shot) return Backend::template entry<&quantised_two_shot<BF16, Code>>();
        return Backend::template entry<&quantised_one_shot<BF16, Code>>();
      default:
        return {};
    }
  });
}

/// Norms of rows, by the rows' type. Kernels that quantise are separate, because encoders would slow down the others.
template <class Backend, class Element, class Args>
typename Backend::Entry summed_norm_kernel(const Args& args) {
  if (args.quantised.values != nullptr) return Backend::template entry<&norm_rows<Element, true, Args>>();
  return Backend::template entry<&norm_rows<Element, false, Args>>();
}
template <class Backend, class Args>
typename Backend::Entry summed_norm_kernel(const Args& args) {
  switch (args.dtype) {
    case kF32:
      return summed_norm_kernel<Backend, F32>(args);
    case kF16:
      return summed_norm_kernel<Backend, F16>(args);
    case kBF16:
      return summed_norm_kernel<Backend, BF16>(args);
    default:
      return {};
  }
}

/// Sums and norms in one kernel. `Backend::kNormsOfAWorld`: whether kernels for one world size are worthwhile;
/// `Backend::kClusters`: whether clusters of blocks may process rows of whole packets; `Backend::kQuantisesAtOnce`:
/// whether one-shot kernels and the gather kernel can quantise. LayerNorm has no kernels for one world size, and
/// clusters process its rows in one-shot kernels alone.
template <class Backend, class Element, uint32_t kWorld, bool kQuantised, class Args>
typename Backend::Entry fused_norm_kernel(const Args& args) {
  constexpr bool kLayer = std::derived_from<Args, FusedLayerNormArgs>;
  constexpr uint32_t kFixed = Backend::kNormsOfAWorld && !kLayer ? kWorld : 0;
  if (args.clustered != 0) {
    if constexpr (Backend::kClusters) {
      if (args.sum.algorithm == kOneShotSentinel) return Backend::template clustered<Element, kFixed, kQuantised>(args);
    }
    if constexpr (Backend::kClusters && !kLayer) {
      if (args.sum.algorithm == kTwoShotSentinel) return Backend::template clustered_two_shot<Element, kFixed, kQuantised>(args);
    }
    return {};
  }
  constexpr bool kAnywhere = !kQuantised || Backend::kQuantisesAtOnce;
  if (args.sum.algorithm == kOneShotSentinel) {
    if constexpr (kAnywhere) return Backend::template entry<&norm_one_shot<Element, kFixed, kQuantised, Args>>();
  }
  if (args.sum.algorithm == kTwoShotSentinel) return Backend::template entry<&norm_two_shot<Element, kFixed, kQuantised, Args>>();
  if (args.sum.algorithm == kTwoShotZeroCopy) {
    if constexpr (kAnywhere) return Backend::template entry<&norm_gather<Element, kFixed, kQuantised, Args>>();
  }
  return {};
}
template <class Backend, class Element, uint32_t kWorld, class Args>
typename Backend::Entry fused_norm_kernel(const Args& args) {
  if (args.norm.quantised.values != nullptr) return fused_norm_kernel<Backend, Element, kWorld, true>(args);
  return fused_norm_kernel<Backend, Element, kWorld, false>(args);
}
template <class Backend, class ElementType, class Args>
typename Backend::Entry fused_norm_kernel(const Args& args) {
  if (args.sum.world == 2) return fused_norm_kernel<Backend, Sum<ElementType>, 2>(args);
  if (args.sum.world == 4) return fused_norm_kernel<Backend, Sum<ElementType>, 4>(args);
  if (args.sum.world == 8) return fused_norm_kernel<Backend, Sum<ElementType>, 8>(args);
  return fused_norm_kernel<Backend, Sum<ElementType>, 0>(args);
}
template <class Backend, class Args>
typename Backend::Entry fused_norm_kernel(const Args& args) {
  switch (args.norm.dtype) {
    case kF32:
      return fused_norm_kernel<Backend, Sum<F32>, 0>(args);
    case kF16:
      return fused_norm_kernel<Backend, F16>(args);
    case kBF16:
      return fused_norm_kernel<Backend, BF16>(args);
    default:
      return {};
  }
}

/// The kernel of a call, by its argument block.
template <class Backend>
typename Backend::Entry kernel(const AllReduceArgs& args) {
  if (args.world < 2 || args.world > kMaxWorld) return {};
  if (args.codec != kCodecNone) return quantised_kernel<Backend>(args);
  return reducing_kernel<Backend>(args);
}
template <class Backend>
typename Backend::Entry kernel(const ExchangeArgs& args) {
  return exchange_kernel<Backend>(args);
}
template <class Backend>
typename Backend::Entry kernel(const CountsArgs&) {
  return Backend::template entry<&exchange_counts>();
}
template <class Backend>
typename Backend::Entry kernel(const SignalArgs&) {
  return Backend::template entry<&signal>();
}
template <class Backend>
typename Backend::Entry kernel(const AgreeArgs&) {
  return Backend::template entry<&agree>();
}
template <class Backend>
typename Backend::Entry kernel(const ProbeArgs&) {
  return Backend::template entry<&probe>();
}
template <class Backend>
typename Backend::Entry kernel(const WideProbeArgs&) {
  return Backend::template entry<&wide_probe>();
}
template <class Backend>
typename Backend::Entry kernel(const HeapProbeArgs&) {
  return Backend::template entry<&heap_probe>();
}
template <class Backend, std::derived_from<NormArgs> Args>
typename Backend::Entry kernel(const Args& args) {
  return summed_norm_kernel<Backend>(args);
}
template <class Backend, std::derived_from<FusedNormArgs> Args>
typename Backend::Entry kernel(const Args& args) {
  return fused_norm_kernel<Backend>(args);
}
/// Kernels of experts. Their argument blocks begin with ExpertArgs.
template <class Backend, class Args, std::enable_if_t<std::is_base_of_v<ExpertArgs, Args>, int> = 0>
typename Backend::Entry kernel(const Args& args) {
  return experts_kernel<Backend>(args);
}
template <class Backend>
typename Backend::Entry kernel(const PairsArgs&) {
  return Backend::template entry<&pairs>();
}

template <class Backend>
typename Backend::Entry kernel(const MulticastArgs& args) {
  return multicast_kernel<Backend>(args);
}
template <class Backend>
typename Backend::Entry kernel(const ScaleArgs& args) {
  return scale_kernel<Backend>(args);
}

/// Whether a launch fits. Its own function for each backend, whose teams differ.
template <class Backend, class Args>
constexpr bool fits_here(const Args& args, const Geometry& geometry) {
  if constexpr (std::is_same_v<Args, AllReduceArgs>) {
    if (args.codec != kCodecNone) return quantised_fits(args, geometry, platform::kTeam);
  }
  return fits(args, geometry);
}

/// The kernel of a launch. Null: no such kernel exists, or the launch violates the kernels' assumptions.
template <class Backend>
typename Backend::Entry kernel(Kind kind, const void* block, const Geometry& geometry) {
  const auto fitting = [&geometry](const auto& args) -> typename Backend::Entry {
    if (!fits_here<Backend>(args, geometry) || (Backend::kThreadAnItem && geometry.threads < items(args))) return {};
    return kernel<Backend>(args);
  };
  switch (kind) {
#define LAUNCH(name, Args, bytes) \
  case Kind::name:                \
    return fitting(*static_cast<const Args*>(block));
#include "kernels/launches.def"
#undef LAUNCH
  }
  return {};
}

/// Calls `visit` with argument blocks of a type that have all its kernels run, until it returns another number
/// than 0; returns that. Most blocks have one kernel.
template <class Args, class Visit>
int32_t each_call(Args args, Visit visit) {
  return visit(args);
}
template <class Args, class Visit>
int32_t each_element_type(Args args, Visit visit) {
  for (const uint32_t world : {2, 3, 4, 8}) {
    for (uint32_t dtype = 0; dtype < kElementTypes; ++dtype) {
      for (const uint32_t reduction : {kSum, kProduct}) {
        args.world = world;
        args.dtype = dtype;
        args.reduction = reduction;
        if (const int32_t code = visit(args)) return code;
      }
    }
  }
  return 0;
}
template <class Visit>
int32_t each_call(const MulticastArgs& any, Visit visit) {
  return each_multicast(any, visit);
}
template <class Visit>
int32_t each_call(const ScaleArgs& any, Visit visit) {
  return each_scale(any, visit);
}
template <class Visit>
int32_t each_call(const AllReduceArgs& any, Visit visit) {
  return each_element_type(any, [&](AllReduceArgs args) {
    for (args.algorithm = 0; args.algorithm < kAllReduceAlgorithms; ++args.algorithm) {
      for (uint32_t codec = kCodecNone; codec < kCodecs; ++codec) {
        args.codec = codec;
        if (const int32_t code = visit(args)) return code;
      }
    }
    return int32_t{0};
  });
}
template <class Visit>
int32_t each_call(const ExchangeArgs& any, Visit visit) {
  return each_element_type(any, [&](ExchangeArgs args) {
    for (args.algorithm = 0; args.algorithm < kExchangeAlgorithms; ++args.algorithm) {
      for (const uint64_t bytes : {0, 1}) {  // in one round and of whole packets, or not
        args.largest_bytes = args.row_bytes = bytes;
        if (const int32_t code = visit(args)) return code;
      }
    }
    return int32_t{0};
  });
}
template <std::derived_from<NormArgs> Args, class Visit>
int32_t each_call(Args args, Visit visit) {
  uint8_t code = 0;  // quantised rows have an address
  for (void* const values : {static_cast<void*>(nullptr), static_cast<void*>(&code)}) {
    for (const uint32_t dtype : {kF32, kF16, kBF16}) {
      args.dtype = dtype;
      args.quantised.values = values;
      if (const int32_t error = visit(args)) return error;
    }
  }
  return 0;
}
template <std::derived_from<FusedNormArgs> Args, class Visit>
int32_t each_call(Args any, Visit visit) {
  return each_call(any.norm, [&](const NormArgs& norm) {
    Args args = any;
    args.norm = norm;
    for (const uint32_t world : {2, 3, 4, 8}) {
      for (const uint32_t algorithm : {kOneShotSentinel, kTwoShotSentinel, kTwoShotZeroCopy}) {
        args.sum.world = world;
        args.sum.algorithm = algorithm;
        args.clustered = 0;
        if (const int32_t code = visit(args)) return code;
        for (uint32_t form = 0; form < 4; ++form) {  // of a packet a column and of more, by row and by share
          const uint32_t hidden = form < 2 ? 1 : 16 * kNormColumns;
          args.clustered = form % 2 == 0 ? kClusteredByRow : kClusteredByShare;
          for (const uint32_t to : {kNarrowE4M3, kNarrowE2M1}) {
            for (const uint32_t scaling : {kScalingStatic, kScalingPerToken, kScalingPerGroup, kScalingMx, kScalingNvfp4}) {
              args.norm.hidden = hidden;
              args.norm.quantised.to = to;
              args.norm.quantised.scaling = scaling;
              if (const int32_t code = visit(args)) return code;
            }
          }
        }
      }
    }
    return int32_t{0};
  });
}
/// Calls `visit` with every kernel there is, with some several times and with null where there is none, until it
/// returns another number than 0; returns that.
template <class Backend, class Visit>
int32_t each_kernel(Visit visit) {
  const auto visit_kernel = [&visit](const auto& args) -> int32_t { return visit(kernel<Backend>(args)); };
#define LAUNCH(name, Args, bytes) \
  if (const int32_t code = each_call(Args{}, visit_kernel)) return code;
#include "kernels/launches.def"
#undef LAUNCH
  return 0;
}

}  // namespace symmetra::kernels
