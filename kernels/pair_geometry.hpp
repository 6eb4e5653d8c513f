// How messages between pairs are divided: the tasks of a launch, and whether its arguments fit each other. A part of geometry.hpp.
#pragma once
#include "kernels/args.hpp"

namespace symmetra::kernels {

/// Tasks of a launch: each way that is used, of each lane. The tasks are distributed over the blocks round-robin.
constexpr uint32_t pair_tasks(const PairsArgs& args) { return args.lanes * (args.used_streams + args.used_channels); }
/// Most data packets of a message in a stream: a header fits too, and a quarter of the ring stays free.
constexpr uint32_t pair_room(uint32_t stream_packets) { return stream_packets / 4 * 3 - 1; }
/// Whether a message is short enough for the streams, or is cut into pieces as its length requires, and the pieces fit a slot;
/// and the launch uses the ways of the message.
constexpr bool is_pair_end(const PairsArgs& args, const PairEnd& end) {
  if (end.peer >= args.world || end.peer == args.rank || end.bytes >= uint64_t{1} << 48) return false;
  if (end.pieces == 0) {
    const uint64_t packets = (end.bytes + 7) / 8;
    return end.piece_packets <= pair_room(args.stream_packets) && packets <= uint64_t{args.used_streams} * end.piece_packets;
  }
  if (end.piece_packets == 0 || end.piece_packets > args.slot_packets || end.pieces >= 1u << 31) return false;
  const uint64_t packets = (end.bytes + 15) / 16, pieces = (packets + end.piece_packets - 1) / end.piece_packets;
  return end.pieces == pieces && (end.pieces < args.channels ? end.pieces : args.channels) <= args.used_channels;
}
/// Whether a lane has messages, all of one peer and direction that no earlier lane has.
constexpr bool is_pair_lane(const PairsArgs& args, uint32_t lane) {
  const uint32_t begin = args.first[lane], end = args.first[lane + 1];
  if (begin >= end || end > kMostPairEnds || (lane == 0 && begin != 0)) return false;
  const PairEnd& first = args.end[begin];
  const auto alike = [&first](const PairEnd& other) { return other.peer == first.peer && (other.sends != 0) == (first.sends != 0); };
  for (uint32_t number = begin; number < end; ++number) {
    if (!alike(args.end[number]) || !is_pair_end(args, args.end[number])) return false;
  }
  for (uint32_t before = 0; before < lane; ++before) {
    if (alike(args.end[args.first[before]])) return false;
  }
  return true;
}

}  // namespace symmetra::kernels
