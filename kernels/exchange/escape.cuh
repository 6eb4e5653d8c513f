// Sentinel packets for any bits: a sender replaces the word that means "not arrived" by another word, and the receiver
// restores it. This is byte stuffing, on words.
#pragma once
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// The data that one thread sends at once: packets, and an escape word that describes their replacement. The escape
/// words of 32 consecutive units are adjacent, followed by their packets, so that 32 threads write whole lines.
struct EscapedUnit {
  using Wire = Sentinel<F32>;  // every word of a packet proves its own arrival
  using Data = Wire::Data;
  static constexpr uint32_t kPackets = kEscapedUnitPackets;
  static constexpr uint32_t kUnits = kEscapedGroupUnits;
  /// Packets of the escape words of a group. In scratch a group has its units' escape words, followed by their packets.
  static constexpr uint32_t kWordPackets = kUnits / 4;
  /// The escape word of an unchanged unit.
  static constexpr uint32_t kAsItWas = 0xFFFFFFFE;

  /// Groups of a strip.
  SYMMETRA_DEVICE static uint32_t groups(uint32_t packets) { return (packets + kUnits * kPackets - 1) / (kUnits * kPackets); }
  /// The index of packet `i` of a unit in the strip.
  SYMMETRA_DEVICE static uint32_t packet(uint32_t unit, uint32_t i) {
    return unit / kUnits * (kUnits * kPackets) + i * kUnits + unit % kUnits;
  }
  /// The index of packet `i` of a unit in the slot.
  SYMMETRA_DEVICE static uint32_t place(uint32_t unit, uint32_t i) {
    return unit / kUnits * kEscapedGroupPackets + kWordPackets + i * kUnits + unit % kUnits;
  }
  /// The index of the escape word of a unit in the slot, in words.
  SYMMETRA_DEVICE static uint32_t word(uint32_t unit) { return unit / kUnits * (kEscapedGroupPackets * 4) + unit % kUnits; }

  Data data[kPackets];

  /// Replaces every "not arrived" word by a word that the unit does not contain, and returns that word.
  SYMMETRA_DEVICE uint32_t escape() {
    if (!holds(Wire::kMissing)) return kAsItWas;
    // The unit has 16 words, at least one of which is the sentinel, so one of 16 numbers is unused.
    uint32_t instead = 0;
    while (holds(instead)) ++instead;
    replace(Wire::kMissing, instead);
    return instead;
  }
  /// Restores the original words of a unit.
  SYMMETRA_DEVICE void restore(uint32_t instead) {
    if (instead != kAsItWas) replace(instead, Wire::kMissing);
  }

 private:
  SYMMETRA_DEVICE bool holds(uint32_t word) const {
    bool any = false;
    each([&](uint32_t p, uint32_t w) { any |= data[p].word[w] == word; });
    return any;
  }
  SYMMETRA_DEVICE void replace(uint32_t word, uint32_t by) {
    each([&](uint32_t p, uint32_t w) { data[p].word[w] = data[p].word[w] == word ? by : data[p].word[w]; });
  }
  template <class Body>
  SYMMETRA_DEVICE static void each(Body body) {
    SYMMETRA_UNROLL
    for (uint32_t p = 0; p < kPackets; ++p) {
      SYMMETRA_UNROLL
      for (uint32_t w = 0; w < 4; ++w) body(p, w);
    }
  }
};

}  // namespace symmetra::kernels
