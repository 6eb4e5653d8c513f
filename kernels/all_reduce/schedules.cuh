// Schedules of the ring and of recursive doubling, as pure formulas: which rank sends what to which rank in each step.
// The kernels run them; tests/kernels/schedules_test.cc simulates them for every world size and proves that each rank's
// part is added once.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// The ring of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009). The message has one chunk per
/// rank, and every rank sends only to the next rank. Chunk c starts at rank c. Every rank adds its part to what it
/// received until rank c - 1 has the sum (reduce-scatter); then the sum goes round once more (all-gather). With four
/// ranks, as step: chunk, where + means that the rank adds, and * that this completes the sum:
///
///     rank 0   0: 0   1: 3+   2: 2+   3: 1*   4: 0    5: 3    6: 2
///     rank 1   0: 1   1: 0+   2: 3+   3: 2*   4: 1    5: 0    6: 3
///     rank 2   0: 2   1: 1+   2: 0+   3: 3*   4: 2    5: 1    6: 0
///     rank 3   0: 3   1: 2+   2: 1+   3: 0*   4: 3    5: 2    6: 1
///
/// The next rank receives in step s + 1 the chunk that a rank has in step s. The last step only receives.
struct RingSchedule {
  uint32_t rank;
  uint32_t world;

  SYMMETRA_DEVICE uint32_t next() const { return rank + 1 == world ? 0 : rank + 1; }
  SYMMETRA_DEVICE uint32_t previous() const { return (rank == 0 ? world : rank) - 1; }
  SYMMETRA_DEVICE uint32_t steps() const { return 2 * world - 1; }
  /// Number of steps that send: the first steps.
  SYMMETRA_DEVICE uint32_t sends() const { return 2 * world - 2; }
  /// Number of steps that send partial sums: the first of the sending steps.
  SYMMETRA_DEVICE uint32_t partial_sends() const { return world - 1; }
  SYMMETRA_DEVICE uint32_t chunk(uint32_t step) const { return (rank + 2 * world - step) % world; }
  SYMMETRA_DEVICE bool receives(uint32_t step) const { return step > 0; }
  /// Whether this rank adds its part of the chunk.
  SYMMETRA_DEVICE bool reduces(uint32_t step) const { return step < world; }
  /// Whether this rank has the sum after the step.
  SYMMETRA_DEVICE bool completes(uint32_t step) const { return step >= world - 1; }
};

/// How the channels of a ring share a chunk: each takes one piece per round. Depends only on the message and the
/// launch.
struct RingPieces {
  uint32_t rounds;
  uint32_t packets;  ///< per piece; the last piece of a chunk may be short or empty

  SYMMETRA_DEVICE RingPieces(uint32_t chunk_packets, uint32_t channels, uint32_t slot_packets) {
    const uint64_t room = uint64_t{channels} * slot_packets;
    rounds = static_cast<uint32_t>((chunk_packets + room - 1) / room);
    const uint64_t pieces = uint64_t{channels} * rounds;
    const auto least = static_cast<uint32_t>((chunk_packets + pieces - 1) / pieces);
    const uint32_t even = (least + 31) / 32 * 32;  // starts at a multiple of 512 bytes when the chunk does
    packets = even < slot_packets ? even : slot_packets;
  }
};

/// Recursive doubling of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH"
/// (2005). In step k, ranks whose numbers differ only in bit k exchange their whole message and both add, so that 2^(k
/// + 1) ranks then have equal sums. This takes a power of two. Of six ranks, four are the core; the other two first
/// hand their message to a rank of the core and receive the result last:
///
///     fold in   0 <- 4   1 <- 5
///     step 0    0 <-> 1   2 <-> 3
///     step 1    0 <-> 2   1 <-> 3
///     fold out  0 -> 4   1 -> 5
///
/// The lower rank's part always comes first in a sum, so all ranks get equal bits.
struct DoublingSchedule {
  uint32_t rank;
  uint32_t world;

  SYMMETRA_DEVICE uint32_t steps() const {
    uint32_t steps = 0;
    while (2u << steps <= world) ++steps;
    return steps;
  }
  SYMMETRA_DEVICE uint32_t core() const { return 1u << steps(); }
  SYMMETRA_DEVICE bool in_core() const { return rank < core(); }
  /// Whether this rank sends its part to a core rank, or receives another rank's.
  SYMMETRA_DEVICE bool folds() const { return !in_core() || rank + core() < world; }
  SYMMETRA_DEVICE uint32_t fold_peer() const { return in_core() ? rank + core() : rank - core(); }
  SYMMETRA_DEVICE uint32_t peer(uint32_t step) const { return rank ^ 1u << step; }
  /// Slots for receiving: one per step, and one for both folds, of which a rank receives at most one.
  SYMMETRA_DEVICE uint32_t slots() const { return steps() + (core() == world ? 0 : 1); }
  SYMMETRA_DEVICE uint32_t fold_slot() const { return steps(); }
};

}  // namespace symmetra::kernels
