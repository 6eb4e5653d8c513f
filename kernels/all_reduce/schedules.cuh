// The schedules of the algorithms that go from rank to rank, as formulas alone: who passes
// what to whom in which step. The kernels run them; tests/kernels/schedules_test.cc plays
// them through for every world and proves that every rank's part is taken in once.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// The ring, as in Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009). The
/// message is a chunk a rank; all that is passed goes to the next rank. Chunk c begins with
/// rank c, and every rank adds its part to what it received until rank c - 1 has the sum
/// (reduce-scatter); then the sum goes round once more (all-gather). Of four ranks, as
/// step: chunk, with + where the rank adds to it, * where that makes it the sum:
///
///     rank 0   0: 0   1: 3+   2: 2+   3: 1*   4: 0    5: 3    6: 2
///     rank 1   0: 1   1: 0+   2: 3+   3: 2*   4: 1    5: 0    6: 3
///     rank 2   0: 2   1: 1+   2: 0+   3: 3*   4: 2    5: 1    6: 0
///     rank 3   0: 3   1: 2+   2: 1+   3: 0*   4: 3    5: 2    6: 1
///
/// What a rank has in step s, the next rank receives in step s + 1; the last step only receives.
struct RingSchedule {
  uint32_t rank;
  uint32_t world;

  SYMMETRA_DEVICE uint32_t next() const { return rank + 1 == world ? 0 : rank + 1; }
  SYMMETRA_DEVICE uint32_t previous() const { return (rank == 0 ? world : rank) - 1; }
  SYMMETRA_DEVICE uint32_t steps() const { return 2 * world - 1; }
  /// Steps that pass something on: the first of them.
  SYMMETRA_DEVICE uint32_t sends() const { return 2 * world - 2; }
  /// Steps that pass partial sums on: the first of those.
  SYMMETRA_DEVICE uint32_t partial_sends() const { return world - 1; }
  SYMMETRA_DEVICE uint32_t chunk(uint32_t step) const { return (rank + 2 * world - step) % world; }
  SYMMETRA_DEVICE bool receives(uint32_t step) const { return step > 0; }
  /// Whether the own part of the chunk is taken in.
  SYMMETRA_DEVICE bool reduces(uint32_t step) const { return step < world; }
  /// Whether what this rank has after the step is the sum.
  SYMMETRA_DEVICE bool completes(uint32_t step) const { return step >= world - 1; }
};

/// How the channels of a ring share a chunk: each takes a piece of it a round. A function of
/// the message and the launch alone.
struct RingPieces {
  uint32_t rounds;
  uint32_t packets;  ///< of a piece; the last of a chunk may be short or empty

  SYMMETRA_DEVICE RingPieces(uint32_t chunk_packets, uint32_t channels, uint32_t slot_packets) {
    const uint64_t room = uint64_t{channels} * slot_packets;
    rounds = static_cast<uint32_t>((chunk_packets + room - 1) / room);
    const uint64_t pieces = uint64_t{channels} * rounds;
    const auto least = static_cast<uint32_t>((chunk_packets + pieces - 1) / pieces);
    const uint32_t even = (least + 31) / 32 * 32;  // begins at a multiple of 512 bytes, where the chunk does
    packets = even < slot_packets ? even : slot_packets;
  }
};

/// Recursive doubling (Thakur, Rabenseifner and Gropp, "Optimization of collective communication
/// operations in MPICH", 2005). In step k ranks whose numbers differ in bit k alone exchange all
/// they have and both add it up, so that after it 2^(k + 1) ranks have the same. That takes a
/// power of two: of six ranks four are the core; the others hand their part to a rank of the
/// core first and get the sum last:
///
///     fold in   0 <- 4   1 <- 5
///     step 0    0 <-> 1   2 <-> 3
///     step 1    0 <-> 2   1 <-> 3
///     fold out  0 -> 4   1 -> 5
///
/// Whoever adds puts the part of the lower rank first: all have the same bits.
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
  /// Whether this rank folds its part in, or takes another's.
  SYMMETRA_DEVICE bool folds() const { return !in_core() || rank + core() < world; }
  SYMMETRA_DEVICE uint32_t fold_peer() const { return in_core() ? rank + core() : rank - core(); }
  SYMMETRA_DEVICE uint32_t peer(uint32_t step) const { return rank ^ 1u << step; }
  /// Who receives what has a slot of its own: one a step, and one for both folds, of which
  /// a rank receives one at most.
  SYMMETRA_DEVICE uint32_t slots() const { return steps() + (core() == world ? 0 : 1); }
  SYMMETRA_DEVICE uint32_t fold_slot() const { return steps(); }
};

}  // namespace symmetra::kernels
