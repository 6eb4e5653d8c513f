// The storage of a row in a block between the sum of its squares and its norm.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// The place of a row's scale in a slot of a two-shot, for rows of `packets` packets, and the distance to the next row.
/// A row has whole lines of memory, and its scale has a line of its own: writes that begin inside a line take more
/// packets of the link.
SYMMETRA_DEVICE uint32_t scale_at(uint32_t packets) { return (packets + kLinePackets - 1) / kLinePackets * kLinePackets; }
SYMMETRA_DEVICE uint32_t row_pitch(uint32_t packets) { return scale_at(packets) + kLinePackets; }

/// A row's packets, in shared memory or, if they do not fit there, in this rank's own slot of the call's buffer, as
/// packets. Peers do not write to the own slot in this call. Packets of a codec may arrive there in later calls, so the
/// block clears the slot. Threads of the block sync between `put`, `get` and `clear`.
template <class Protocol>
class Stage {
 public:
  using Data = Words<4>;

  /// `place`: the row's first packet in the own slot. `own`: the own slot.
  SYMMETRA_DEVICE Stage(Data* shared, Packet* own, uint32_t place, uint32_t packets)
      : shared_(shared), slot_(own + place), long_(packets <= kStagePackets ? 0 : packets) {}

  SYMMETRA_DEVICE void put(uint32_t packet, const Data& data) const {
    if (!is_long()) {
      shared_[packet] = data;
    } else {
      platform::store_packet(slot_ + packet, Protocol::encode(data, 0));
    }
  }
  SYMMETRA_DEVICE Data get(uint32_t packet) const {
    return is_long() ? Protocol::decode(platform::load_packet(slot_ + packet)) : shared_[packet];
  }
  /// Whether the row is in the slot.
  SYMMETRA_DEVICE bool is_long() const { return long_ != 0; }
  SYMMETRA_DEVICE void clear() const {
    for (uint32_t packet = platform::thread(); packet < long_; packet += platform::threads()) {
      platform::store_packet(slot_ + packet, Protocol::empty());
    }
  }

 private:
  Data* shared_;
  Packet* slot_;
  uint32_t long_;  ///< packets in the slot
};

/// The shared memory of a block: arrived packets, the columns of a row, its stage, and the largest absolute values of a
/// quantised row or of its groups.
struct NormShared {
  Words<4>* arrived;
  float* columns;
  Words<4>* stage;
  float* largest;

  /// `packets`: packets in a row.
  SYMMETRA_DEVICE NormShared(uint32_t items, uint32_t packets)
      : arrived(platform::shared<Words<4>>()),
        columns(reinterpret_cast<float*>(arrived + items)),
        stage(reinterpret_cast<Words<4>*>(columns + kNormWords)),
        largest(reinterpret_cast<float*>(stage + (packets <= kStagePackets ? packets : 0))) {}
};

}  // namespace symmetra::kernels
