// Validates launches of the expert kernels.
#pragma once
#include "kernels/geometry.hpp"

namespace symmetra::kernels {

/// Whether the layer and the numbers of tokens are valid.
constexpr bool is_layer(const ExpertArgs& args) {
  const bool known = args.world >= 1 && args.world <= kMaxWorld && args.rank < args.world && args.layout < kRowLayouts && args.align >= 1 &&
                     args.header_bytes % 16 == 0 && args.replicas_offset % 16 == 0;
  const bool experts = args.experts >= 1 && args.replicas >= args.experts && args.replicas <= kMostReplicas &&
                       args.first_replica <= args.replicas && args.local <= args.replicas - args.first_replica;
  const bool rows = args.top_k >= 1 && args.top_k <= kMostTopK && args.hidden >= 1 && args.hidden <= kMostExpertHidden &&
                    args.tokens <= args.max_tokens && uint64_t{args.world} * args.max_tokens * args.top_k < uint64_t{1} << 32 &&
                    args.capacity < uint64_t{1} << 32;
  return known && experts && rows;
}
constexpr bool is_by_token(uint32_t layout) { return (kLayoutsByToken >> layout & 1) != 0; }
constexpr bool is_rows_type(uint32_t dtype) { return dtype == kF32 || dtype == kF16 || dtype == kBF16; }
constexpr bool is_routing(const ExpertRouting& routing) { return routing.id_bytes == 4 || routing.id_bytes == 8; }
/// Whether the wire format of rows is valid.
constexpr bool is_wired(const RowArgs& args) {
  return is_layer(args) && is_rows_type(args.dtype) && args.wire < kWires && args.scales < kCodeScales && args.row_bytes % 16 == 0 &&
         args.scales_offset % 16 == 0;
}
/// Whether the parts of a combine are valid.
constexpr bool has_parts(const PartArgs& args) {
  return is_layer(args) && is_rows_type(args.dtype) && args.part_bytes % 16 == 0 && args.step < args.top_k && args.sharers >= 1 &&
         args.task < kCombineTasks;
}
/// Whether the offsets and sizes of expert packets satisfy the kernels' assumptions.
constexpr bool has_packets(const ExpertArgs& args, const ExpertPacketArea& area) {
  const bool offsets = (area.control_offset | area.data_offset | area.buffer_bytes) % 16 == 0;
  return offsets && area.buffers >= 1 && kEpochModulus % area.buffers == 0 && area.control_packets >= 1 && args.max_tokens < 1u << 16;
}
/// Words of block-shared memory of an expert kernel: kExpertWords, and the scales of a row.
constexpr uint64_t expert_words(const ExpertArgs& args, uint32_t threads) {
  return uint64_t{threads} * kScanWords + kExpertWords + (args.hidden + kCodeGroup - 1) / kCodeGroup;
}
/// Sending blocks also stage the table of experts.
constexpr uint64_t expert_words(const SendArgs& args, uint32_t threads) {
  return expert_words(static_cast<const ExpertArgs&>(args), threads) + kMostStagedExperts;
}
/// A receiving block has routing headers, counts and lists, except by source.
constexpr uint64_t expert_words(const ReceiveArgs& args, uint32_t threads) {
  if (args.layout == kRowsBySource) return expert_words(static_cast<const ExpertArgs&>(args), threads);
  const uint64_t headers = sizeof(RoutingHeader) / 4 * uint64_t{args.world}, top_k = args.top_k, pairs = args.rows_at_once * top_k;
  const uint64_t lists = args.rows_at_once * ((top_k + 3) / 4 * 4) + (pairs + 3) / 4 * 4 + pairs;
  const uint64_t held = args.holds_replicas != 0 ? args.world * ((args.max_tokens * top_k + 3) / 4 * 2) : 0;
  return uint64_t{threads} * kScanWords + headers + args.replicas + 2 * uint64_t{args.local} + 1 + args.world + lists + held;
}
/// Whether the grid and the block-shared memory of an expert kernel are valid.
template <class Args>
constexpr bool has_expert_shape(const Args& args, const Geometry& geometry, uint32_t most_blocks, uint32_t most_threads) {
  return has_shape(geometry, most_blocks, most_threads) && geometry.shared_bytes >= kSharedBytes + expert_words(args, geometry.threads) * 4;
}
constexpr bool fits(const RouteArgs& args, const Geometry& geometry) {
  const uint32_t most = args.task == kRouteCount ? 1 : kMostNormBlocks;
  const bool asked = is_routing(args.routing) || args.task == kRouteCount || args.task == kRoutePlace;
  const bool placed = args.task != kRoutePlace || args.pair_places != 0 || is_by_token(args.layout);
  return is_layer(args) && asked && placed && args.task < kRouteTasks && has_expert_shape(args, geometry, most, 1024);
}
constexpr bool fits(const MoveArgs& args, const Geometry& geometry) {
  return is_wired(args) && args.task < kMoveTasks && has_expert_shape(args, geometry, kMostNormBlocks, 1024);
}
/// Rows are staged, or go directly to their places. Direct places need whole packets and a layout with one row for each
/// token. Metadata goes directly only by source, and only if rows do.
constexpr bool fits(const PushArgs& args, const Geometry& geometry) {
  const PlacedRows& to = args.placed;
  const bool placed = to.rows != kStaged, by_source = args.layout == kRowsBySource;
  const bool rows = !placed || (is_by_token(args.layout) && to.rows % 16 == 0 && args.payload_bytes % 16 == 0);
  const auto is_whole = [&](uint64_t offset) { return offset == kStaged || (placed && by_source && offset % 4 == 0); };
  const bool bytes = placed && by_source && args.scales == kCodeScalesE8M0;
  const bool metadata = (is_whole(to.scales) || bytes) && is_whole(to.ids) && is_whole(to.weights);
  const bool asked = is_routing(args.routing) || !by_source || args.again != 0;
  return is_wired(args) && rows && metadata && asked && has_expert_shape(args, geometry, kMaxBlocks, 1024);
}
constexpr bool fits(const SendArgs& args, const Geometry& geometry) {
  return is_wired(args) && is_routing(args.routing) && has_packets(args, args.packets) &&
         has_expert_shape(args, geometry, kMaxBlocks, 1024);
}
constexpr bool fits(const ReceiveArgs& args, const Geometry& geometry) {
  return is_wired(args) && has_packets(args, args.packets) && args.rows_at_once >= 1 &&
         has_expert_shape(args, geometry, kMaxBlocks, kMostAheadThreads);
}
constexpr bool fits(const CombineArgs& args, const Geometry& geometry) {
  const uint32_t most_threads = args.task == kCombineSend ? kMostAheadThreads : 1024;
  return has_parts(args) && has_expert_shape(args, geometry, kMostNormBlocks, most_threads);
}
/// Results that peers read are whole packets in a layout with one row for each token.
constexpr bool fits(const CombineDirectArgs& args, const Geometry& geometry) {
  const bool read = is_by_token(args.layout) && args.results_offset != kStaged && args.results_offset % 16 == 0 && args.exact == 0;
  return has_parts(args) && (args.task == kCombineSend || read) && has_expert_shape(args, geometry, kMaxBlocks, kMostAheadThreads);
}
constexpr bool fits(const CombinePacketArgs& args, const Geometry& geometry) {
  return has_parts(args) && has_packets(args, args.packets) && has_expert_shape(args, geometry, kMaxBlocks, kMostAheadThreads);
}

}  // namespace symmetra::kernels
