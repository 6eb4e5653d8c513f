// The argument block of messages between pairs of ranks: a part of args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

/// Most channels of a direction between two ranks. Channels share nothing.
constexpr uint32_t kPairChannels = 8;
/// Slots of the queue of a channel. With two, the sender fills one while the receiver empties the other.
constexpr uint32_t kPairSlots = 2;
/// The region of messages between pairs: pieces that arrived from each rank, by channel; pieces that each rank has taken, by
/// channel; then the queues of the other ranks.
constexpr uint32_t kPairCountBytes = 64;
constexpr uint32_t kPairTakenOffset = kMaxWorld * kPairChannels * kPairCountBytes;
constexpr uint32_t kPairQueuesOffset = 2 * kPairTakenOffset;
/// Words of the own counts: pieces sent to each rank, by channel, and pieces received from each.
constexpr uint32_t kPairCounts = 2 * kMaxWorld * kPairChannels;
/// Most messages of a launch, and most queues that they pass: one to and one from every other rank.
constexpr uint32_t kMostPairEnds = 96;
constexpr uint32_t kMostPairLanes = 2 * (kMaxWorld - 1);

/// One end of a message: what this rank sends to a rank or receives from it.
struct PairEnd {
  uint8_t* address;  ///< own memory
  uint64_t bytes;
  uint32_t peer;
  uint32_t sends;          ///< nonzero: this rank is the sender
  uint32_t piece_packets;  ///< packets of 16 bytes of a piece; the last piece may be short
  uint32_t pieces;         ///< at least one
};

/// Messages between this rank and others. No other rank takes part. Messages of one rank and direction are a lane: they
/// follow each other, and other lanes wait for none of them.
struct PairsArgs {
  Wait wait;
  uint32_t* counts;  ///< own: kPairCounts words
  uint32_t rank;
  uint32_t world;
  uint32_t channels;      ///< of a direction between two ranks; equal on all ranks
  uint32_t slot_packets;  ///< of a slot; the first is the head of the piece
  uint32_t op;            ///< kOp*, in every head, and reported when a wait gives up
  uint32_t lanes;
  uint8_t first[kMostPairLanes + 2];  ///< the first message of each lane, and behind the last
  uint8_t* peers[kMaxWorld];          ///< region of every rank
  PairEnd end[kMostPairEnds];         ///< by lane, in order
};

}  // namespace symmetra::kernels
