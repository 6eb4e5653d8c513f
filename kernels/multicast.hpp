// The argument block of multicast calls, a part of kernels/args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

struct BlockState;

/// Tasks of a rank on its range of a multicast call.
constexpr uint32_t kMulticastSumToAll = 0;  ///< stores the sum of all ranks' range on all ranks
constexpr uint32_t kMulticastSum = 1;       ///< stores the sum of all ranks' range in own memory
constexpr uint32_t kMulticastToAll = 2;     ///< stores own memory on all ranks
constexpr uint32_t kMulticastTasks = 3;     ///< the number of tasks

/// One multicast call, between two barriers. Each rank has a range of the message; the ranges of ranks do not overlap.
struct MulticastArgs {
  BlockState* state;  ///< own, of the barrier
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint32_t lanes_log2;        ///< packets that a block handles at once
  uint32_t task;              ///< kMulticast*
  uint32_t dtype;             ///< of sums; kMulticastToAll moves bytes
  uint32_t op;                ///< kOp*, reported when a wait gives up
  uint64_t bytes;             ///< of this rank's range
  Multicast arenas;           ///< of all ranks, from their start
  Multicast flags;            ///< barrier flags of all ranks
  const void* from;           ///< kMulticastToAll: own range
  void* into;                 ///< kMulticastSum: own range
  uint64_t from_bytes;        ///< sums: from the start of an arena to the range
  uint64_t into_bytes;        ///< stores on all ranks: from the start of an arena to the range
  uint8_t* peers[kMaxWorld];  ///< barrier flags of every rank; this rank's at [rank]
};

}  // namespace symmetra::kernels
