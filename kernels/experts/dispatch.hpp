// Selects the expert kernel for an argument block. `each_call` lists argument blocks that together select every kernel.
#pragma once
#include "kernels/experts/by_source.cuh"
#include "kernels/experts/by_token.cuh"
#include "kernels/experts/geometry.hpp"
#include "kernels/experts/pull.cuh"
#include "kernels/experts/push.cuh"
#include "kernels/experts/push_by_source.cuh"
#include "kernels/experts/receive.cuh"
#include "kernels/experts/send.cuh"

namespace symmetra::kernels {

/// Calls `of(element)` with the type of rows or results, and returns its kernel.
template <class Backend, class Of>
typename Backend::Entry rows_kernel(uint32_t dtype, Of of) {
  switch (dtype) {
    case kF32:
      return of(F32{});
    case kF16:
      return of(F16{});
    case kBF16:
      return of(BF16{});
    default:
      return {};
  }
}
/// Calls `of(element)` with the type of the rows of a dispatch: bytes, if the kernel does not quantise them.
template <class Backend, class Of>
typename Backend::Entry wired_kernel(const RowArgs& args, Of of) {
  return args.wire != kWireF8 ? of(U8{}) : rows_kernel<Backend>(args.dtype, of);
}

template <class Backend>
typename Backend::Entry experts_kernel(const RouteArgs& args) {
  switch (args.task) {
    case kRouteHeader:
      return Backend::template entry<&expert_header>();
    case kRouteTally:
      if (args.layout == kRowsBySource) return Backend::template entry<&expert_tally_by_source>();
      return Backend::template entry<&expert_tally>();
    case kRouteCount:
      return Backend::template entry<&expert_count>();
    case kRoutePlace:
      return Backend::template entry<&expert_place>();
    default:
      return {};
  }
}
template <class Backend>
typename Backend::Entry experts_kernel(const MoveArgs& args) {
  switch (args.task) {
    case kMoveStage:
      return wired_kernel<Backend>(args, [](auto element) { return Backend::template entry<&expert_rows<decltype(element)>>(); });
    case kMoveCopy:
      return Backend::template entry<&expert_copy>();
    case kMoveMetadata:
      return Backend::template entry<&expert_metadata>();
    default:
      return {};
  }
}
template <class Backend>
typename Backend::Entry experts_kernel(const PushArgs& args) {
  return wired_kernel<Backend>(args, [&](auto element) {
    using Element = decltype(element);
    if (args.layout == kRowsBySource) return Backend::template entry<&expert_push_by_source<Element>>();
    return Backend::template entry<&expert_push<Element>>();
  });
}
template <class Backend>
typename Backend::Entry experts_kernel(const SendArgs& args) {
  if (args.wire == kWireBytes) return Backend::template entry<&expert_send<U8, ByteProtocol>>();
  return wired_kernel<Backend>(args, [](auto element) { return Backend::template entry<&expert_send<decltype(element), RowProtocol>>(); });
}
template <class Backend>
typename Backend::Entry experts_kernel(const ReceiveArgs& args) {
  if (args.layout == kRowsBySource && args.wire == kWireBytes) return Backend::template entry<&expert_receive_by_source<ByteProtocol>>();
  if (args.layout == kRowsBySource) return Backend::template entry<&expert_receive_by_source<RowProtocol>>();
  const bool by_rank = args.layout == kRowsByRank;
  if (args.wire == kWireBytes && by_rank) return Backend::template entry<&expert_receive<ByteProtocol, true>>();
  if (args.wire == kWireBytes) return Backend::template entry<&expert_receive<ByteProtocol, false>>();
  if (by_rank) return Backend::template entry<&expert_receive<RowProtocol, true>>();
  return Backend::template entry<&expert_receive<RowProtocol, false>>();
}
template <class Backend>
typename Backend::Entry experts_kernel(const CombineArgs& args) {
  return rows_kernel<Backend>(args.dtype, [&](auto element) {
    using Element = decltype(element);
    if (args.task == kCombineSend) return Backend::template entry<&expert_combine_send<Element>>();
    return Backend::template entry<&expert_combine_receive<Element>>();
  });
}
template <class Backend>
typename Backend::Entry experts_kernel(const CombineDirectArgs& args) {
  return rows_kernel<Backend>(args.dtype, [&](auto element) {
    using Element = decltype(element);
    if (args.task == kCombineSend) return Backend::template entry<&expert_deliver<Element>>();
    return Backend::template entry<&expert_pull<Element>>();
  });
}
/// Combines in packets, for a type of results.
template <class Backend, class Element>
typename Backend::Entry experts_kernel(const CombinePacketArgs& args) {
  const bool by_token = is_by_token(args.layout);
  // Whether a thread has several packets of a part, and whether there are two ranks.
  const bool wide = args.part_bytes / 16 > uint64_t{args.sharers} * kMostAheadThreads, two = args.world <= 2;
  if (args.task == kCombineSend) {
    if (by_token && wide) return Backend::template entry<&expert_return_rows<Element, 2>>();
    if (by_token) return Backend::template entry<&expert_return_rows<Element, 1>>();
    return Backend::template entry<&expert_return<Element>>();
  }
  if (by_token && wide && two) return Backend::template entry<&expert_sum_rows<Element, 2, 2>>();
  if (by_token && wide) return Backend::template entry<&expert_sum_rows<Element, 4, 2>>();
  if (by_token && two) return Backend::template entry<&expert_sum_rows<Element, 2, 1>>();
  if (by_token) return Backend::template entry<&expert_sum_rows<Element, 4, 1>>();
  return Backend::template entry<&expert_sum<Element>>();
}
template <class Backend>
typename Backend::Entry experts_kernel(const CombinePacketArgs& args) {
  return rows_kernel<Backend>(args.dtype, [&](auto element) { return experts_kernel<Backend, decltype(element)>(args); });
}

/// Calls `visit` with blocks of all layouts, until it returns another number than 0; returns that.
template <class Args, class Visit>
int32_t each_layout(Args args, Visit visit) {
  for (args.layout = 0; args.layout < kRowLayouts; ++args.layout) {
    if (const int32_t code = visit(args)) return code;
  }
  return 0;
}
/// Calls `visit` with blocks of all layouts, wire formats and types of rows, until it returns another number than 0;
/// returns that.
template <class Args, class Visit>
int32_t each_wire(const Args& any, Visit visit) {
  return each_layout(any, [&](Args args) {
    for (args.wire = 0; args.wire < kWires; ++args.wire) {
      for (args.dtype = kF32; args.dtype <= kBF16; ++args.dtype) {
        if (const int32_t code = visit(args)) return code;
      }
    }
    return int32_t{0};
  });
}
/// Calls `visit` with blocks of all kernels of a combine, until it returns another number than 0; returns that.
template <class Args, class Visit>
int32_t each_combine(const Args& any, Visit visit) {
  return each_layout(any, [&](Args args) {
    for (args.dtype = kF32; args.dtype <= kBF16; ++args.dtype) {
      for (args.task = 0; args.task < kCombineTasks; ++args.task) {
        if (const int32_t code = visit(args)) return code;
      }
    }
    return int32_t{0};
  });
}
template <class Visit>
int32_t each_call(const RouteArgs& any, Visit visit) {
  return each_layout(any, [&](RouteArgs args) {
    for (args.task = 0; args.task < kRouteTasks; ++args.task) {
      if (const int32_t code = visit(args)) return code;
    }
    return int32_t{0};
  });
}
template <class Visit>
int32_t each_call(MoveArgs args, Visit visit) {
  for (args.task = 0; args.task < kMoveTasks; ++args.task) {
    if (const int32_t code = each_wire(args, visit)) return code;
  }
  return 0;
}
template <class Visit>
int32_t each_call(const PushArgs& any, Visit visit) {
  return each_wire(any, visit);
}
template <class Visit>
int32_t each_call(const SendArgs& any, Visit visit) {
  return each_wire(any, visit);
}
template <class Visit>
int32_t each_call(const ReceiveArgs& any, Visit visit) {
  return each_wire(any, visit);
}
template <class Visit>
int32_t each_call(const CombineArgs& any, Visit visit) {
  return each_combine(any, visit);
}
template <class Visit>
int32_t each_call(const CombineDirectArgs& any, Visit visit) {
  return each_combine(any, visit);
}
template <class Visit>
int32_t each_call(CombinePacketArgs args, Visit visit) {
  args.sharers = 1;
  for (const uint32_t packets : {1u, kMostAheadThreads + 1}) {
    for (args.world = 2; args.world <= 3; ++args.world) {
      args.part_bytes = uint64_t{packets} * 16;
      if (const int32_t code = each_combine(args, visit)) return code;
    }
  }
  return 0;
}

}  // namespace symmetra::kernels
