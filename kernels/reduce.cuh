// Reductions over ranks.
#pragma once
#include "kernels/numeric.cuh"

namespace symmetra::kernels {

/// The world size of a call: fixed at compile time, or kWorld == 0.
template <uint32_t kWorld>
SYMMETRA_DEVICE uint32_t world_of(uint32_t world) {
  return kWorld == 0 ? world : kWorld;
}

/// Reduces, in rank order, the packets of one lane in a block's tile.
template <class Element, uint32_t kWorld, uint32_t kWords>
SYMMETRA_DEVICE Words<kWords> reduce_ranks(const Words<kWords>* lane, uint32_t lanes_log2, const Reduction& reduction) {
  typename Element::template Accumulator<kWords> total(reduction);
  total.start(lane[0]);
  SYMMETRA_UNROLL
  for (uint32_t rank = 1; rank < world_of<kWorld>(reduction.world); ++rank) total.add(lane[rank << lanes_log2]);
  return total.round();
}

/// Reduces two packets in the given order, and rounds; for algorithms that pass partial results on. `last`: this covers
/// all ranks, so a sum becomes an average if one was asked for.
template <class Element, uint32_t kWords>
SYMMETRA_DEVICE Words<kWords> reduce_two(const Words<kWords>& first, const Words<kWords>& second, Reduction reduction, bool last) {
  if (reduction.kind == kAverage && !last) reduction.kind = kSum;
  typename Element::template Accumulator<kWords> total(reduction);
  total.start(first);
  total.add(second);
  return total.round();
}

}  // namespace symmetra::kernels
