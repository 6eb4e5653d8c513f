// Validates a launch: the conditions that the kernels rely on.
#pragma once
#include "kernels/args.hpp"
#include "kernels/pair_geometry.hpp"

namespace symmetra::kernels {

/// Block-shared memory of every kernel; the host platform uses it for votes.
constexpr uint32_t kSharedBytes = 16;

/// Whether a launch has blocks and threads, and not more than the kernel supports.
constexpr bool has_shape(const Geometry& geometry, uint32_t most_blocks, uint32_t most_threads) {
  return geometry.blocks >= 1 && geometry.blocks <= most_blocks && geometry.threads >= 1 && geometry.threads <= most_threads;
}

/// Bytes of an element; 0: no such type.
constexpr uint32_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case kF32:
    case kI32:
    case kU32:
      return 4;
    case kF64:
    case kI64:
    case kU64:
      return 8;
    case kF16:
    case kBF16:
      return 2;
    case kI8:
    case kU8:
    case kF8E4M3:
    case kF8E5M2:
      return 1;
    default:
      return 0;
  }
}

/// Data bytes of a packet.
constexpr uint32_t packet_bytes(uint32_t algorithm) {
  return algorithm == kOneShotLL || algorithm == kTwoShotLL || algorithm == kRecursiveDoubling ? 8 : 16;
}

/// Packets of 16 bytes that one source needs in one buffer of the region; zero-copy needs none, and a ring works with
/// any slot.
constexpr uint64_t slot_packets(uint32_t algorithm, uint64_t bytes, uint32_t world) {
  const uint64_t packets = bytes == 0 ? 1 : (bytes + packet_bytes(algorithm) - 1) / packet_bytes(algorithm);
  if (algorithm == kTwoShotZeroCopy) return 0;
  if (algorithm == kRing) return 1;
  return algorithm == kTwoShotLL || algorithm == kTwoShotSentinel ? (packets + world - 1) / world : packets;
}

/// Slots of recursive doubling: one per step, and one more when ranks fold in and out.
constexpr uint64_t doubling_slots(uint32_t world) {
  uint64_t steps = 0;
  while (uint64_t{2} << steps <= world) ++steps;
  return uint64_t{1} << steps == world ? steps : steps + 1;
}

/// Bytes of a region: packets, flags of the zero-copy barrier, or flags, counters and queues of a ring. Fresh regions
/// hold zeros; regions of sentinel protocols hold platform::kFreshWord.
constexpr uint64_t region_bytes(uint32_t algorithm, uint64_t slot_packets, uint32_t world) {
  const uint64_t buffers = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel ? 3 : 2;
  const uint64_t hops = algorithm == kTwoShotLL || algorithm == kTwoShotSentinel ? 2 : 1;
  if (algorithm == kTwoShotZeroCopy) return uint64_t{kMaxBlocks} * kMaxWorld * 4;
  if (algorithm == kRing) return kRingQueuesOffset + uint64_t{kRingChannels} * kRingSlots * slot_packets * 16;
  if (algorithm == kRecursiveDoubling) return 2 * doubling_slots(world) * slot_packets * 16;
  return buffers * hops * world * slot_packets * 16;
}

/// Items that a block's threads process at once. On a device a block has one thread per item, except for a ring, which
/// takes any number of threads; on the host any number works.
constexpr uint32_t items(uint32_t algorithm, uint32_t world, uint32_t lanes_log2) {
  if (algorithm == kRing) return 1;
  return algorithm == kTwoShotZeroCopy || algorithm == kRecursiveDoubling ? 1u << lanes_log2 : world << lanes_log2;
}

/// Block-shared memory of an all-reduce: the data of one packet per item.
constexpr uint32_t shared_bytes(uint32_t algorithm, uint32_t world, uint32_t lanes_log2) {
  if (algorithm == kTwoShotZeroCopy || algorithm == kRing) return kSharedBytes;
  return kSharedBytes + items(algorithm, world, lanes_log2) * packet_bytes(algorithm);
}

/// Most threads a block of an algorithm may have.
constexpr uint32_t most_threads(uint32_t algorithm) { return algorithm >= kTwoShotZeroCopy ? 512 : 1024; }
constexpr uint32_t most_blocks(uint32_t algorithm) { return algorithm == kRing ? kRingChannels : kMaxBlocks; }

/// Whether the channels of a ring count less than 2^31 in a call.
constexpr bool ring_counts(uint64_t packets, uint32_t world, uint32_t blocks, uint64_t slot_packets) {
  const uint64_t share = packets / world + 1, round = blocks * slot_packets;
  return (share / round + 1) * (2 * world) < uint64_t{1} << 31;
}

/// Bits of an element that a codec has encoded; 0: no such codec.
constexpr uint32_t codec_bits(uint32_t codec) {
  switch (codec) {
    case kCodecFp8:
    case kCodecInt8:
      return 8;
    case kCodecInt6:
      return 6;
    case kCodecInt4:
      return 4;
    default:
      return 0;
  }
}
/// Packets of an encoded unit: its elements, and a scale of 16 bits for each group.
constexpr uint32_t unit_packets(uint32_t codec) { return kUnitElems * codec_bits(codec) / 128 + kUnitElems / kGroupElems / 8; }
/// Packets of a source in one buffer of the region: the slots are divided among all ranks but the receiver, at lines of memory.
constexpr uint64_t quantised_slot(uint64_t slot_packets, uint32_t world) {
  return slot_packets * world / (world - 1) / kLinePackets * kLinePackets;
}
/// Packets that one source of a quantised all-reduce needs in one buffer of the region.
constexpr uint64_t quantised_packets(const AllReduceArgs& args) {
  const uint64_t units = args.count == 0 ? 1 : (args.count + kUnitElems - 1) / kUnitElems;
  return (args.algorithm == kTwoShotSentinel ? (units + args.world - 1) / args.world : units) * unit_packets(args.codec);
}

/// Most threads a block of a quantised all-reduce may have.
constexpr uint32_t kMostQuantisedThreads = 512;

/// Whether the launch of a quantised all-reduce stays within its memory, for a team of `team` threads.
constexpr bool quantised_fits(const AllReduceArgs& args, const Geometry& geometry, uint32_t team) {
  const bool known = args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && codec_bits(args.codec) != 0 &&
                     (args.dtype == kF16 || args.dtype == kBF16) && (args.reduction == kSum || args.reduction == kAverage) &&
                     (args.algorithm == kOneShotSentinel || args.algorithm == kTwoShotSentinel);
  const bool shape = has_shape(geometry, kMaxBlocks, kMostQuantisedThreads) && geometry.threads >= team && args.lanes_log2 <= 16 &&
                     geometry.shared_bytes >= kSharedBytes;
  const bool room = args.count < uint64_t{1} << 33 && args.slot_packets < uint64_t{1} << 32 &&
                    region_bytes(args.algorithm, args.slot_packets, args.world) <= uint64_t{16} << 32 &&
                    quantised_packets(args) <= quantised_slot(args.slot_packets, args.world);
  return known && shape && room;
}

/// Whether a launch stays within its memory: without a codec, see quantised_fits. Packet offsets have 32 bits.
constexpr bool fits(const AllReduceArgs& args, const Geometry& geometry) {
  if (args.codec != kCodecNone) return false;
  const uint64_t bytes = args.count * element_bytes(args.dtype);
  const uint64_t region = region_bytes(args.algorithm, args.slot_packets, args.world);
  const bool known = args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && element_bytes(args.dtype) != 0;
  const bool shape = has_shape(geometry, most_blocks(args.algorithm), most_threads(args.algorithm)) && args.lanes_log2 <= 16 &&
                     geometry.shared_bytes >= shared_bytes(args.algorithm, args.world, args.lanes_log2);
  const bool size = args.count <= UINT64_MAX / 16 && bytes / packet_bytes(args.algorithm) < uint64_t{1} << 31;
  const bool room = args.slot_packets < uint64_t{1} << 32 && region <= uint64_t{16} << 32 &&
                    slot_packets(args.algorithm, bytes, args.world) <= args.slot_packets;
  const bool counts = args.algorithm != kRing || ring_counts(bytes / 16, args.world, geometry.blocks, args.slot_packets);
  return known && shape && size && room && counts;
}

constexpr bool by_ll(const ExchangeArgs& args) {
  return args.algorithm == kExchangePackets || args.algorithm == kReducePackets || args.algorithm == kRelayPackets;
}
constexpr bool by_sentinels(const ExchangeArgs& args) { return args.algorithm == kReduceSentinels || args.algorithm == kExchangeEscaped; }
constexpr bool through_scratch(const ExchangeArgs& args) { return by_ll(args) || by_sentinels(args); }

/// Whether all strips of this rank are one row each, of whole packets of `packet_bytes` bytes in aligned memory.
inline bool is_whole(const ExchangeArgs& args, uint32_t packet_bytes) {
  uint64_t all = args.row_bytes != 0;
  for (uint32_t peer = 0; peer < args.world; ++peer) {
    all |= reinterpret_cast<uintptr_t>(args.from[peer]) | reinterpret_cast<uintptr_t>(args.into[peer]);
    all |= args.send_bytes[peer] | args.receive_bytes[peer];
  }
  return all % packet_bytes == 0;
}
/// Whether a reduction has several results, each of a few ranks: only in multi-round kernels for any world size.
constexpr bool has_several_results(const AllReduceArgs&) { return false; }
constexpr bool has_several_results(const ExchangeArgs& args) { return args.sources != 0; }
/// Whether the ranks divide evenly into the sources of results, in a reduction that supports several results.
constexpr bool results_fit(const ExchangeArgs& args) {
  const bool reduces = args.algorithm == kReducePackets || args.algorithm == kReduceSentinels;
  return reduces && args.learned == nullptr && args.world % args.sources == 0;
}

/// Whether all strips of this rank fit their slots and are whole packets, which the kernels of one round rely on.
inline bool in_one_round(const ExchangeArgs& args) {
  return by_ll(args) && !has_several_results(args) && args.learned == nullptr && args.largest_bytes <= args.slot_packets * 8 &&
         is_whole(args, 8);
}

/// Whether the relayed message is whole packets of 8 bytes in aligned memory, on this rank.
inline bool relays_whole(const ExchangeArgs& args) {
  const void* base = args.rank == args.root ? args.from[args.root] : args.into[args.root];
  return (reinterpret_cast<uintptr_t>(base) | args.largest_bytes) % 8 == 0;
}
/// Whether a message fits the buffer that it is relayed through: all slots in a row. One line per share may be added.
constexpr bool relay_fits(const ExchangeArgs& args) {
  const uint64_t packets = args.largest_bytes / 8 + (args.largest_bytes % 8 != 0), room = args.slot_packets * args.world;
  return packets <= room && room < uint64_t{1} << 31 && args.slot_packets >= kRelayLine * args.world;
}

/// Packets of a slot that a strip needs as escaped packets.
constexpr uint64_t escaped_packets(uint64_t bytes) {
  constexpr uint64_t kGroupBytes = kEscapedGroupUnits * kEscapedUnitPackets * 16;
  return (bytes == 0 ? 1 : (bytes + kGroupBytes - 1) / kGroupBytes) * kEscapedGroupPackets;
}
/// Whether all strips fit their slots of sentinel packets. Packet offsets have 32 bits.
constexpr bool sentinels_fit(const ExchangeArgs& args) {
  const bool room = region_bytes(kOneShotSentinel, args.slot_packets, args.world) <= uint64_t{16} << 32;
  if (!room || args.learned != nullptr || args.largest_bytes > args.slot_packets * 16) return false;
  return args.algorithm != kExchangeEscaped || escaped_packets(args.largest_bytes) <= args.slot_packets;
}

/// Items that a block's threads process at once. On a device a block has at least this many threads.
template <class Args>
constexpr uint32_t items(const Args&) {
  return 1;
}
constexpr uint32_t items(const AllReduceArgs& args) { return items(args.algorithm, args.world, args.lanes_log2); }
constexpr uint32_t items(const ExchangeArgs& args) {
  if (args.algorithm == kRelayPackets) return (args.world - 1) << args.lanes_log2;
  return through_scratch(args) ? args.world << args.lanes_log2 : 1u << args.lanes_log2;
}
constexpr uint32_t items(const MulticastArgs& args) { return 1u << args.lanes_log2; }
/// Block-shared memory of an exchange. A reduction needs the data of one packet for each item.
constexpr uint32_t shared_bytes(const ExchangeArgs& args) {
  if (args.algorithm == kReducePackets) return kSharedBytes + items(args) * 8;
  return kSharedBytes + (args.algorithm == kReduceSentinels ? items(args) * 16 : 0);
}
/// Block-shared memory of the exchange of counts: two values per rank.
constexpr uint32_t kCountsSharedBytes = kSharedBytes + 2 * kMaxWorld * 8;

/// Signals and agreement: one block, whose threads handle one rank each in turn.
constexpr bool one_block(const Geometry& geometry) { return has_shape(geometry, 1, 1024) && geometry.shared_bytes >= kSharedBytes; }
constexpr bool fits(const SignalArgs& args, const Geometry& geometry) {
  if (args.world < 1 || args.world > kMaxWorld || args.rank >= args.world || args.action > kSignalTake) return false;
  return (args.action == kSignalBarrier || args.peer < (args.action == kSignalTake ? 1u << args.world : args.world)) && one_block(geometry);
}
constexpr bool fits(const ProbeArgs& args, const Geometry& geometry) {
  return has_shape(geometry, kMaxBlocks, 1024) && args.targets <= kMaxWorld && args.packets < uint64_t{1} << 60;
}
constexpr bool fits(const WideProbeArgs&, const Geometry& geometry) { return has_shape(geometry, kMaxBlocks, 1024); }
constexpr bool fits(const HeapProbeArgs& args, const Geometry& geometry) {
  const uint32_t world = args.heap.signals.world;
  const bool known = world >= 1 && world <= kMaxWorld && args.heap.signals.rank < world && args.peer < world && args.task < kHeapProbes;
  const bool works = args.task == kHeapProbePut || args.rounds > 0, channel = args.task != kHeapProbeMessage || args.heap.channels > 0;
  return known && works && channel && has_shape(geometry, kMaxBlocks, 1024) && (args.line_mask & (args.line_mask + 1)) == 0;
}
/// Whether a multicast sum adds values of the type.
constexpr bool multicast_adds(uint32_t dtype) { return dtype < kElementTypes && dtype != kF64 && dtype != kI8 && dtype != kU8; }
/// Whether a range of a multicast call is whole elements and has the addresses that the call needs.
constexpr bool fits(const MulticastArgs& args, const Geometry& geometry) {
  const bool known = args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && args.task < kMulticastTasks &&
                     args.arenas.world == args.world && args.flags.world == args.world;
  const bool reached = args.arenas.table != nullptr && args.flags.table != nullptr;
  const bool own =
      args.bytes == 0 || (args.task == kMulticastToAll ? args.from != nullptr : args.task != kMulticastSum || args.into != nullptr);
  const bool sums = args.task == kMulticastToAll || (multicast_adds(args.dtype) && args.bytes % element_bytes(args.dtype) == 0);
  const bool shape = has_shape(geometry, kMaxBlocks, 512) && args.lanes_log2 <= 16 && geometry.shared_bytes >= kSharedBytes;
  return known && reached && own && sums && shape && args.bytes < uint64_t{1} << 34;
}
/// Words of the columns of a row, and of the levels of their tree.
constexpr uint32_t norm_words() {
  uint32_t words = 1;
  for (uint32_t columns = kNormColumns; columns > 1; columns = (columns + kNormFold - 1) / kNormFold) words += columns;
  return words;
}
static_assert(kNormWords >= norm_words() && kNormWords % 4 == 0, "room for every level, and whole packets");
/// Whether a scaling supports a layout of scales.
constexpr bool has_layout(uint32_t scaling, uint32_t layout) {
  switch (scaling) {
    case kScalingPerGroup:
      return layout == kScalesRows || layout == kScalesColumns;
    case kScalingMx:
      return layout == kScalesRows || layout == kScalesPackedColumns || layout == kScalesSwizzled128x4;
    case kScalingNvfp4:
      return layout == kScalesRows || layout == kScalesSwizzled128x4;
    default:
      return layout == kScalesRows;
  }
}
/// Whether a scaling supports a format of values.
constexpr bool has_format(uint32_t scaling, uint32_t to) {
  if (scaling == kScalingNvfp4) return to == kNarrowE2M1;
  return to < kNarrows && to != (scaling == kScalingMx ? kNarrowI8 : kNarrowE2M1);
}
/// Whether rows can be quantised as requested, or are not quantised.
constexpr bool is_quantised(const QuantisedRows& how, uint32_t width) {
  if (how.values == nullptr) return true;
  const bool grouped = how.scaling >= kScalingPerGroup, known = how.scaling == kScalingStatic || how.scaling == kScalingNvfp4;
  if (how.scaling >= kScalings || !has_format(how.scaling, how.to) || !has_layout(how.scaling, how.layout)) return false;
  if ((how.scales != nullptr) == (how.scaling == kScalingStatic) || (how.known_scale != nullptr) != known) return false;
  if (grouped ? how.elems == 0 || how.elems > kMostGroup || how.elems % kGroupStep != 0 : how.elems != 0) return false;
  return how.scaling < kScalingMx || width % how.elems == 0;
}
/// Whether the output has quantised values for `rows` rows from `first_row` on, or rows are not quantised.
constexpr bool has_codes(const QuantisedRows& how, uint64_t first_row, uint64_t rows) {
  return how.values == nullptr || (first_row + rows <= how.all_rows && how.all_rows < uint64_t{1} << 40);
}
constexpr bool is_row(const NormArgs& args) {
  const bool types = args.dtype == kF32 || args.dtype == kF16 || args.dtype == kBF16;
  return types && args.hidden >= 1 && args.hidden <= kMostHidden && args.width >= args.hidden && args.width <= kMostWidth &&
         args.input_pitch >= args.hidden && args.rows < uint64_t{1} << 40 &&
         (args.weight_dtype == args.dtype || args.weight_dtype == kF32) && is_quantised(args.quantised, args.width);
}
/// Words for the largest absolute values. `items` is 0 in a norm of summed rows.
constexpr uint32_t largest_words(const NormArgs& args, uint32_t items) {
  if (args.quantised.values == nullptr) return 0;
  return items > kNormLargestWords ? (items + 3) / 4 * 4 : kNormLargestWords;
}
constexpr bool fits(const NormArgs& args, const Geometry& geometry) {
  return is_row(args) && has_codes(args.quantised, args.quantised.first_row, args.rows) && has_shape(geometry, kMostNormBlocks, 1024) &&
         geometry.shared_bytes >= kNormSharedBytes + largest_words(args, 0) * 4;
}

constexpr uint64_t row_packets(const NormArgs& args) { return (uint64_t{args.hidden} * element_bytes(args.dtype) + 15) / 16; }
/// Packets that one source needs in one buffer of the region: those of all rows, or of the rows of a share. Each row of
/// a share takes whole lines of memory, followed by a line for its scale.
constexpr uint64_t norm_slot_packets(const FusedNormArgs& args) {
  const uint64_t packets = row_packets(args.norm), pitch = ((packets + kLinePackets - 1) / kLinePackets + 1) * kLinePackets;
  return args.sum.algorithm == kOneShotSentinel ? args.norm.rows * packets : (args.norm.rows + args.sum.world - 1) / args.sum.world * pitch;
}
/// Items of a fused norm. A zero-copy kernel receives no packets.
constexpr uint32_t items(const FusedNormArgs& args) {
  const bool alone = args.sum.algorithm == kOneShotSentinel;  // a lane is an item, else a lane and a rank
  return args.sum.algorithm == kTwoShotZeroCopy ? 0 : (alone ? 1 : args.sum.world) << args.sum.lanes_log2;
}
constexpr uint32_t items(const FusedLayerNormArgs& args) { return items(static_cast<const FusedNormArgs&>(args)); }
/// Block-shared memory of a fused norm: in a two-shot the arrived packets; the columns; the largest absolute values if
/// rows are quantised; and the stage of a row that fits.
constexpr uint64_t norm_shared_bytes(const FusedNormArgs& args) {
  const uint64_t packets = row_packets(args.norm), stage = packets <= kStagePackets ? packets * 16 : 0;
  const uint64_t arrived = args.sum.algorithm == kOneShotSentinel ? 0 : uint64_t{items(args)} * 16;
  return kNormSharedBytes + arrived + uint64_t{largest_words(args.norm, items(args))} * 4 + stage;
}
/// Whether the output has quantised values for all rows that a rank quantises: the rows of all ranks or, if rows are
/// scattered and not gathered, of its own share.
constexpr bool has_codes(const FusedNormArgs& args) {
  const QuantisedRows& how = args.norm.quantised;
  if (args.share_rows == 0 || args.gathers != 0) return has_codes(how, how.first_row, args.norm.rows);
  return has_codes(how, how.first_row + args.sum.rank * args.share_rows, args.norm.rows / args.sum.world);
}
/// Whether the algorithm supports the scattering of the rows.
constexpr bool is_scattered(const FusedNormArgs& args) {
  if (args.share_rows == 0) return args.sum.algorithm != kTwoShotZeroCopy;
  const bool whole =
      args.norm.rows % args.sum.world == 0 && args.norm.rows / args.sum.world <= args.share_rows && args.share_rows < uint64_t{1} << 32;
  if (args.norm.quantised.values != nullptr && args.sum.algorithm == kOneShotSentinel) return false;
  // A row that is too long for the stage is kept in the output.
  const bool staged = row_packets(args.norm) <= kStagePackets;
  const bool all = args.gathers != 0 && args.norm.rows / args.sum.world == args.share_rows && (args.norm.output != nullptr || staged);
  return whole && (args.sum.algorithm == kTwoShotSentinel || (args.sum.algorithm == kTwoShotZeroCopy && all));
}
/// Whether clusters can sum and norm the rows: whole packets at multiples of their size, at most kMostClusteredTiles
/// for each column, with groups of consecutive threads, and quantised values at multiples of eight bytes.
inline bool takes_clusters(const FusedNormArgs& args) {
  const NormArgs& norm = args.norm;
  const uint64_t packets = row_packets(norm), group = uint64_t{norm.quantised.elems} * element_bytes(norm.dtype) / 16;
  const auto at = [](const void* operand) { return reinterpret_cast<uintptr_t>(operand); };
  const uintptr_t all = at(norm.input) | at(norm.residual) | at(norm.weight) | at(norm.residual_out) | at(norm.output) |
                        uintptr_t{norm.hidden} * element_bytes(norm.dtype);
  const bool groups = (group & (group - 1)) == 0 && group <= kMostClusteredGroup && at(norm.quantised.values) % 8 == 0;
  const bool pushed = args.sum.algorithm == kTwoShotSentinel || (args.sum.algorithm == kOneShotSentinel && args.share_rows == 0);
  return pushed && norm.width == norm.hidden && packets <= kNormColumns * kMostClusteredTiles && all % 16 == 0 && groups;
}
/// Whether a cluster of the launch has a thread for each packet of a row, the same columns of every tile in a block,
/// and shared memory for the totals of the tiles after the first.
inline bool clustered_fits(const FusedNormArgs& args, const Geometry& geometry) {
  const uint64_t packets = row_packets(args.norm), tiles = (packets + kNormColumns - 1) / kNormColumns;
  if (!takes_clusters(args) || tiles == 0 || geometry.threads % (32 * tiles) != 0) return false;
  const uint64_t columns = geometry.threads / tiles, all = columns * geometry.cluster;
  const uint32_t most = args.clustered == kClusteredByShare ? kMostByShareThreads : kMostClusteredThreads;
  const bool shape = geometry.cluster >= 1 && geometry.cluster <= kMostCluster && geometry.blocks % geometry.cluster == 0 &&
                     geometry.threads <= most && all <= kNormColumns && all >= (tiles > 1 ? kNormColumns : packets);
  if (!shape || (args.clustered == kClusteredByShare && geometry.blocks % (args.sum.world * geometry.cluster) != 0)) return false;
  return geometry.shared_bytes >= kClusteredSharedBytes + (tiles - 1) * columns * 8;
}
inline bool fits(const FusedNormArgs& args, const Geometry& geometry) {
  const AllReduceArgs& sum = args.sum;
  const bool known = sum.world >= 2 && sum.world <= kMaxWorld && sum.rank < sum.world && is_row(args.norm) &&
                     args.norm.input_pitch == args.norm.hidden && args.norm.rows < uint64_t{1} << 32 &&
                     (sum.algorithm == kOneShotSentinel || sum.algorithm == kTwoShotSentinel || sum.algorithm == kTwoShotZeroCopy);
  // Packets of a column are added in order, so all packets of a column belong to one lane.
  if (!known || sum.lanes_log2 > 16 || 1u << sum.lanes_log2 > kNormColumns || !is_scattered(args) || !has_codes(args)) return false;
  const bool shape = has_shape(geometry, kMaxBlocks, 1024) &&
                     (args.clustered != 0 ? clustered_fits(args, geometry) : geometry.shared_bytes >= norm_shared_bytes(args));
  if (sum.algorithm == kTwoShotZeroCopy) {
    const QuantisedRows& how = args.norm.quantised;
    const bool reached = (args.norm.output == nullptr || sum.outputs != nullptr) && (how.values == nullptr || args.values != nullptr) &&
                         (how.scales == nullptr || args.scales != nullptr);
    return shape && reached && sum.inputs != nullptr;
  }
  const bool room = sum.slot_packets < uint64_t{1} << 32 &&
                    region_bytes(sum.algorithm, sum.slot_packets, sum.world) <= uint64_t{16} << 32 &&
                    norm_slot_packets(args) <= sum.slot_packets;
  return shape && room;
}
/// Clusters process rows of LayerNorm in a one-shot, with biases that begin at a packet.
inline bool fits(const FusedLayerNormArgs& args, const Geometry& geometry) {
  const bool clusters = args.sum.algorithm == kOneShotSentinel && reinterpret_cast<uintptr_t>(args.bias) % 16 == 0;
  return (args.clustered == 0 || clusters) && fits(static_cast<const FusedNormArgs&>(args), geometry);
}
/// Block-shared memory of messages between pairs: 16 bytes, and a part for each task of a block.
constexpr uint32_t pair_shared_bytes(const PairsArgs& args, uint32_t blocks) {
  return kSharedBytes + 16 + kPairTaskBytes * ((pair_tasks(args) + blocks - 1) / blocks);
}
/// Whether the messages of a launch fit their streams and slots, and its blocks have memory for their tasks.
constexpr bool fits(const PairsArgs& args, const Geometry& geometry) {
  const bool known = args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && args.lanes >= 1 &&
                     args.lanes <= kMostPairLanes && args.op < 256;
  const bool streams = args.streams >= 1 && args.streams <= kPairStreams && args.used_streams >= 1 && args.used_streams <= args.streams &&
                       args.stream_packets >= kLeastStreamPackets && (args.stream_packets & (args.stream_packets - 1)) == 0;
  const bool channels = args.channels >= 1 && args.channels <= kPairChannels && args.used_channels <= args.channels;
  if (!known || !streams || !channels || !has_shape(geometry, kMaxBlocks, 512)) return false;
  for (uint32_t lane = 0; lane < args.lanes; ++lane) {
    if (!is_pair_lane(args, lane)) return false;
  }
  return geometry.shared_bytes >= pair_shared_bytes(args, geometry.blocks);
}
constexpr bool fits(const AgreeArgs& args, const Geometry& geometry) {
  return args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && one_block(geometry);
}

constexpr bool fits(const CountsArgs& args, const Geometry& geometry) {
  return args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && one_block(geometry) &&
         geometry.shared_bytes >= kCountsSharedBytes;
}
constexpr bool fits(const ExchangeArgs& args, const Geometry& geometry) {
  const bool packets = through_scratch(args);
  const bool known = args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && args.root < args.world;
  const bool shape = has_shape(geometry, kMaxBlocks, packets && args.algorithm != kExchangeEscaped ? 1024 : 512) && args.lanes_log2 <= 16 &&
                     geometry.shared_bytes >= shared_bytes(args);
  const bool slots = args.slot_packets != 0 && args.slot_packets < uint64_t{1} << 31;
  if (args.algorithm == kRelayPackets && !relay_fits(args)) return false;
  if (by_sentinels(args) && !sentinels_fit(args)) return false;
  if (has_several_results(args) && !results_fit(args)) return false;
  return known && shape && (packets ? slots : args.table != nullptr || args.algorithm == kReduceLocal);
}

/// Whether the rows of a scale are a number of packets that a thread can count, and the rows of the output do not overlap.
constexpr bool fits(const ScaleArgs& args, const Geometry& geometry) {
  const uint64_t bytes = element_bytes(args.dtype);
  const bool rows = args.rows >= 1 && args.rows <= kMaxWorld && args.elems >= 1 && args.elems < uint64_t{1} << 33;
  const bool apart = args.rows == 1 || (args.input_pitch >= args.elems && args.output_pitch >= args.elems);
  return bytes != 0 && rows && args.elems * bytes < uint64_t{16} << 31 && apart && has_shape(geometry, kMostScaleBlocks, kMostScaleThreads);
}

}  // namespace symmetra::kernels
