// Reductions over ranks.
#pragma once
#include "kernels/numeric.cuh"

namespace symmetra::kernels {

/// The ranks of a call: known when compiled, or kWorld == 0.
template <uint32_t kWorld>
SYMMETRA_DEVICE uint32_t world_of(uint32_t world) {
  return kWorld == 0 ? world : kWorld;
}

/// The reduction, in rank order, of the packets of one lane in a block's tile.
template <class Element, uint32_t kWorld, uint32_t kWords>
SYMMETRA_DEVICE Words<kWords> reduce_ranks(const Words<kWords>* lane, uint32_t lanes_log2, const Reduction& reduction) {
  typename Element::template Accumulator<kWords> total(reduction);
  total.start(lane[0]);
  SYMMETRA_UNROLL
  for (uint32_t rank = 1; rank < world_of<kWorld>(reduction.world); ++rank) total.add(lane[rank << lanes_log2]);
  return total.round();
}

}  // namespace symmetra::kernels
