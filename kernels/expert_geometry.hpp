// The conditions of experts' kernels: format and places of rows, packets, and block-shared memory. A part of geometry.hpp.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels {

/// Whether the wire format and the layout of rows are valid.
constexpr bool is_wired(const ExpertArgs& args) {
  const bool types = args.dtype == kF32 || args.dtype == kF16 || args.dtype == kBF16;
  return types && args.wire < kWires && args.scales < kCodeScales && args.layout < kRowLayouts && args.align >= 1 &&
         args.row_bytes % 16 == 0 && args.scales_offset % 16 == 0 && args.head_bytes % 16 == 0 && args.copies_offset % 16 == 0;
}
/// Whether the places of rows are valid: staged, or for whole packets in a layout with one row for each token.
constexpr bool is_placed(const ExpertArgs& args) {
  if (args.placed_offset == kStaged) return args.task != kExpertPull;
  const bool whole = args.task != kExpertPush || args.payload_bytes % 16 == 0;
  const bool by_token = (kLayoutsByToken >> args.layout & 1) != 0;
  return by_token && args.placed_offset % 16 == 0 && whole && args.exact == 0;
}
/// Whether the metadata of rows can be written to its places in memory that peers address. Requires a push by source
/// that also writes the rows to their places.
constexpr bool is_placed_beside(const ExpertArgs& args) {
  const bool push = args.task == kExpertPush && args.layout == kRowsBySource && args.placed_offset != kStaged;
  const auto is_whole = [&](uint64_t offset) { return offset == kStaged || (push && offset % 4 == 0); };
  const bool scales = args.placed_scales == kStaged || (push && (args.scales == kCodeScalesE8M0 || args.placed_scales % 4 == 0));
  return scales && is_whole(args.placed_ids) && is_whole(args.placed_weights);
}
/// Whether an expert kernel has a state, with an entry for each block.
constexpr bool has_calls(const ExpertArgs& args) { return args.task >= kExpertPush; }
/// Whether the offsets and sizes of expert packets satisfy the kernels' assumptions.
constexpr bool has_packets(const ExpertArgs& args) {
  if (args.task < kExpertSend) return true;
  const bool offsets = (args.tellings_offset | args.travelling_offset | args.buffer_bytes) % 16 == 0;
  return offsets && args.buffers >= 1 && kEpochModulus % args.buffers == 0 && args.telling_packets >= 1 && args.rows_at_once >= 1 &&
         args.parts >= 1 && args.max_tokens < 1u << 16;
}
/// Words of block-shared memory of an expert kernel. A receiving block has routing headers, counts and lists, except by
/// source. Other blocks have kExpertWords, the scales of a row, and if they send packets the table of experts.
constexpr uint64_t expert_words(const ExpertArgs& args, uint32_t threads) {
  const uint64_t scan = uint64_t{threads} * kScanWords, top_k = args.top_k;
  const uint64_t staged = args.task == kExpertSend ? kMostStagedExperts : 0, scales = (args.hidden + kCodeGroup - 1) / kCodeGroup;
  if (args.task != kExpertReceive || args.layout == kRowsBySource) return scan + kExpertWords + staged + scales;
  const uint64_t heads = sizeof(ExpertHead) / 4 * uint64_t{args.world}, pairs = args.rows_at_once * top_k;
  const uint64_t lists = args.rows_at_once * ((top_k + 3) / 4 * 4) + (pairs + 3) / 4 * 4 + pairs;
  const uint64_t held = args.holds != 0 ? args.world * ((args.max_tokens * top_k + 3) / 4 * 2) : 0;
  return scan + heads + args.copies + 2 * uint64_t{args.local} + 1 + args.world + lists + held;
}

}  // namespace symmetra::kernels
