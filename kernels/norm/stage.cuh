// Where a block keeps a row between the sum of its squares and its norm.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// A row's packets in shared memory, or where they are too many, in this rank's own slot of the region, which no peer
/// writes, reads or clears. Threads of the block sync between put and get.
class Stage {
 public:
  using Data = Words<4>;

  /// `slot`: the row's first packet in the own slot.
  SYMMETRA_DEVICE Stage(Data* shared, const AllReduceArgs& args, uint32_t slot, uint32_t packets)
      : at_(packets <= kStagePackets ? shared : own(args) + slot) {}

  SYMMETRA_DEVICE void put(uint32_t packet, const Data& data) const { at_[packet] = data; }
  SYMMETRA_DEVICE Data get(uint32_t packet) const { return at_[packet]; }

 private:
  SYMMETRA_DEVICE static Data* own(const AllReduceArgs& args) {
    return reinterpret_cast<Data*>(args.peers[args.rank]) + args.rank * args.slot_packets;
  }

  Data* at_;
};

/// The shared memory of a block: what arrived, the columns of a row, its stage, and what is largest in a quantised row or
/// its groups.
struct NormShared {
  Words<4>* arrived;
  float* columns;
  Words<4>* stage;
  float* largest;

  /// `packets`: of a row.
  SYMMETRA_DEVICE NormShared(uint32_t items, uint32_t packets)
      : arrived(platform::shared<Words<4>>()),
        columns(reinterpret_cast<float*>(arrived + items)),
        stage(reinterpret_cast<Words<4>*>(columns + kNormWords)),
        largest(reinterpret_cast<float*>(stage + (packets <= kStagePackets ? packets : 0))) {}
};

}  // namespace symmetra::kernels
