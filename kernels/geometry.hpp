// Which launches are right: what the kernels take for granted.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels {

/// Most threads a block may have.
constexpr uint32_t kMaxThreads = 1024;
/// Block-shared memory of every kernel, which the host platform uses for votes.
constexpr uint32_t kSharedBytes = 16;

/// Elements of an element type are this many bytes; 0: no such type.
constexpr uint32_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case kF32:
    case kI32:
      return 4;
    case kF64:
    case kI64:
      return 8;
    case kF16:
    case kBF16:
      return 2;
    default:
      return 0;
  }
}

/// Data bytes of a packet.
constexpr uint32_t packet_bytes(uint32_t algorithm) { return algorithm == kOneShotLL || algorithm == kTwoShotLL ? 8 : 16; }

/// Room one source needs in one buffer of the region, in packets of 16 bytes; zero-copy needs none.
constexpr uint64_t slot_packets(uint32_t algorithm, uint64_t bytes, uint32_t world) {
  const uint64_t packets = (bytes + packet_bytes(algorithm) - 1) / packet_bytes(algorithm);
  if (algorithm == kTwoShotZeroCopy) return 0;
  return algorithm == kTwoShotLL || algorithm == kTwoShotSentinel ? (packets + world - 1) / world : packets;
}

/// Bytes of a region: packets, or the flags of the zero-copy barrier. Fresh regions hold
/// zeros; those of sentinel protocols hold ones.
constexpr uint64_t region_bytes(uint32_t algorithm, uint64_t slot_packets, uint32_t world) {
  const uint64_t buffers = algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel ? 3 : 2;
  const uint64_t hops = algorithm == kTwoShotLL || algorithm == kTwoShotSentinel ? 2 : 1;
  if (algorithm == kTwoShotZeroCopy) return uint64_t{kMaxBlocks} * kMaxWorld * 4;
  return buffers * hops * world * slot_packets * 16;
}

/// Block-shared memory of an all-reduce: one packet's data for every rank and lane.
constexpr uint32_t shared_bytes(uint32_t algorithm, uint32_t world, uint32_t lanes_log2) {
  if (algorithm == kTwoShotZeroCopy) return kSharedBytes;
  return kSharedBytes + (world << lanes_log2) * packet_bytes(algorithm);
}

/// Whether a launch stays within its memory. Packet offsets are 32-bit.
constexpr bool fits(const AllReduceArgs& args, const Geometry& geometry) {
  const uint64_t bytes = args.count * element_bytes(args.dtype);
  return args.world >= 2 && args.world <= kMaxWorld && args.rank < args.world && element_bytes(args.dtype) != 0 && geometry.blocks >= 1 &&
         geometry.blocks <= kMaxBlocks && geometry.threads >= 1 && geometry.threads <= kMaxThreads && args.lanes_log2 <= 16 &&
         (args.slot_packets >= 1 || args.algorithm == kTwoShotZeroCopy) &&
         geometry.shared_bytes >= shared_bytes(args.algorithm, args.world, args.lanes_log2) && args.count <= UINT64_MAX / 16 &&
         slot_packets(args.algorithm, bytes, args.world) <= args.slot_packets &&
         region_bytes(args.algorithm, args.slot_packets, args.world) <= uint64_t{16} << 32 &&
         bytes / packet_bytes(args.algorithm) < uint64_t{1} << 31;
}

}  // namespace symmetra::kernels
