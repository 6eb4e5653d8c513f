// Selects the expert kernel for an argument block.
#pragma once
#include "kernels/experts/by_source.cuh"
#include "kernels/experts/by_token.cuh"
#include "kernels/experts/pull.cuh"
#include "kernels/experts/push.cuh"
#include "kernels/experts/push_by_source.cuh"
#include "kernels/experts/receive.cuh"
#include "kernels/experts/send.cuh"

namespace symmetra::kernels {

/// Expert kernels for a type of rows or results.
template <class Backend, class Element>
typename Backend::Entry experts_kernel(const ExpertArgs& args) {
  const bool by_token = (kLayoutsByToken >> args.layout & 1) != 0;
  // Whether a thread has several packets of a row, and whether there are two ranks.
  const bool wide = args.row_bytes / 16 > uint64_t{args.parts} * kMostAheadThreads, two = args.world <= 2;
  switch (args.task) {
    case kExpertRows:
      return Backend::template entry<&expert_rows<Element>>();
    case kExpertPush:
      if (args.layout == kRowsBySource) return Backend::template entry<&expert_push_by_source<Element>>();
      return Backend::template entry<&expert_push<Element>>();
    case kExpertSend:
      return Backend::template entry<&expert_send<Element, RowProtocol>>();
    case kExpertReturn:
      if (by_token && wide) return Backend::template entry<&expert_return_rows<Element, 2>>();
      if (by_token) return Backend::template entry<&expert_return_rows<Element, 1>>();
      return Backend::template entry<&expert_return<Element>>();
    case kExpertSum:
      if (by_token && wide && two) return Backend::template entry<&expert_sum_rows<Element, 2, 2>>();
      if (by_token && wide) return Backend::template entry<&expert_sum_rows<Element, 4, 2>>();
      if (by_token && two) return Backend::template entry<&expert_sum_rows<Element, 2, 1>>();
      if (by_token) return Backend::template entry<&expert_sum_rows<Element, 4, 1>>();
      return Backend::template entry<&expert_sum<Element>>();
    case kExpertGive:
      return Backend::template entry<&expert_give<Element>>();
    case kExpertTake:
      return Backend::template entry<&expert_take<Element>>();
    case kExpertDeliver:
      return Backend::template entry<&expert_deliver<Element>>();
    case kExpertPull:
      return Backend::template entry<&expert_pull<Element>>();
    default:
      return {};
  }
}
/// One step of a dispatch or a combine.
template <class Backend>
typename Backend::Entry experts_kernel(const ExpertArgs& args) {
  switch (args.task) {
    case kExpertHead:
      return Backend::template entry<&expert_head>();
    case kExpertTally:
      if (args.layout == kRowsBySource) return Backend::template entry<&expert_tally_by_source>();
      return Backend::template entry<&expert_tally>();
    case kExpertCount:
      return Backend::template entry<&expert_count>();
    case kExpertPlace:
      return Backend::template entry<&expert_place>();
    case kExpertCopy:
      return Backend::template entry<&expert_copy>();
    case kExpertBeside:
      return Backend::template entry<&expert_beside>();
    case kExpertRows:
      if (args.wire != kWireF8) return Backend::template entry<&expert_rows<U8>>();
      break;
    case kExpertPush:
      if (args.wire != kWireF8 && args.layout == kRowsBySource) return Backend::template entry<&expert_push_by_source<U8>>();
      if (args.wire != kWireF8) return Backend::template entry<&expert_push<U8>>();
      break;
    case kExpertSend:
      if (args.wire == kWireBytes) return Backend::template entry<&expert_send<U8, ByteProtocol>>();
      if (args.wire != kWireF8) return Backend::template entry<&expert_send<U8, RowProtocol>>();
      break;
    case kExpertReceive:
      if (args.layout == kRowsBySource && args.wire == kWireBytes)
        return Backend::template entry<&expert_receive_by_source<ByteProtocol>>();
      if (args.layout == kRowsBySource) return Backend::template entry<&expert_receive_by_source<RowProtocol>>();
      if (args.wire == kWireBytes) return Backend::template entry<&expert_receive<ByteProtocol>>();
      return Backend::template entry<&expert_receive<RowProtocol>>();
    default:
      break;
  }
  switch (args.dtype) {
    case kF32:
      return experts_kernel<Backend, F32>(args);
    case kF16:
      return experts_kernel<Backend, F16>(args);
    case kBF16:
      return experts_kernel<Backend, BF16>(args);
    default:
      return {};
  }
}

/// Calls `visit` with the blocks of every kernel.
template <class Visit>
int32_t each_expert_call(ExpertArgs args, Visit visit) {
  for (args.task = 0; args.task < kExpertKernels; ++args.task) {
    for (args.layout = 0; args.layout < kRowLayouts; ++args.layout) {
      for (args.wire = 0; args.wire < kWires; ++args.wire) {
        for (args.dtype = kF32; args.dtype <= kBF16; ++args.dtype) {
          if (const int32_t code = visit(args)) return code;
        }
      }
    }
  }
  return 0;
}
template <class Visit>
int32_t each_call(ExpertArgs args, Visit visit) {
  args.parts = 1;
  for (const uint32_t packets : {1u, kMostAheadThreads + 1}) {
    for (args.world = 2; args.world <= 3; ++args.world) {
      args.row_bytes = uint64_t{packets} * 16;
      if (const int32_t code = each_expert_call(args, visit)) return code;
    }
  }
  return 0;
}

}  // namespace symmetra::kernels
