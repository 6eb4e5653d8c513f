// The argument block of messages between pairs of ranks: a part of args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

/// Streams of packets of a direction between two ranks, for headers and short messages.
constexpr uint32_t kPairStreams = 16;
/// Most channels of a direction between two ranks, for long messages. Channels share nothing.
constexpr uint32_t kPairChannels = 32;
constexpr uint32_t kPairWays = kPairStreams + kPairChannels;
/// Slots of the queue of a channel. With two, the sender fills one while the receiver empties the other.
constexpr uint32_t kPairSlots = 2;
/// Fewest packets of a stream.
constexpr uint32_t kLeastStreamPackets = 16;
/// The region of messages between pairs: for each rank and way the number of pieces that arrived, and the number of pieces,
/// or packets of a stream, that the rank has taken; then the streams and the queues of the other ranks.
constexpr uint32_t kPairCountBytes = 64;
constexpr uint32_t kPairTakenOffset = kMaxWorld * kPairWays * kPairCountBytes;
constexpr uint32_t kPairStreamsOffset = 2 * kPairTakenOffset;
/// Block-shared memory of a task.
constexpr uint32_t kPairTaskBytes = 24;
/// Words of the own counts: for each rank and way the number of pieces or packets sent, and the number received.
constexpr uint32_t kPairCounts = 2 * kMaxWorld * kPairWays;
/// Most messages of a launch, and most queues that they use: one to and one from every other rank.
constexpr uint32_t kMostPairEnds = 96;
constexpr uint32_t kMostPairLanes = 2 * (kMaxWorld - 1);

/// One end of a message: data that this rank sends to a rank or receives from it.
struct PairEnd {
  uint8_t* address;  ///< own memory
  uint64_t bytes;
  uint32_t peer;
  uint32_t sends;          ///< nonzero: this rank is the sender
  uint32_t piece_packets;  ///< packets of a piece: LL packets in a stream, packets of 16 bytes in a slot; the last piece may be short
  uint32_t pieces;         ///< pieces in channels; 0: streams carry the message, each one piece
};

/// Messages between this rank and others. No other rank takes part. The messages of one peer and direction are a lane:
/// they are in order, and do not wait for other lanes.
struct PairsArgs {
  Wait wait;
  uint32_t* counts;  ///< own: kPairCounts words
  uint32_t rank;
  uint32_t world;
  uint32_t streams;  ///< of a direction between two ranks; equal on all ranks, as the next three
  uint32_t channels;
  uint32_t stream_packets;  ///< LL packets of a stream, a power of two
  uint32_t slot_packets;    ///< packets of 16 bytes in a slot
  uint32_t used_streams;    ///< the ways that the launch uses: the first streams and the first channels
  uint32_t used_channels;
  uint32_t op;  ///< kOp*, in every header, and reported when a wait gives up
  uint32_t lanes;
  uint8_t first[kMostPairLanes + 2];  ///< the first message of each lane, and the end of the last lane
  uint8_t* peers[kMaxWorld];          ///< region of every rank
  PairEnd end[kMostPairEnds];         ///< by lane, in order
};

}  // namespace symmetra::kernels
