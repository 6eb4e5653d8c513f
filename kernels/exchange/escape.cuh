// Sentinel packets for any bits: what a sender puts in place of the word that means "not arrived", and how the receiver puts
// the word back. Byte stuffing, on words.
#pragma once
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// What one thread sends at once: packets, and beside them a word that says how they are escaped. Packets of 32 units that
/// follow each other lie side by side, behind the words of these units, so that 32 threads write whole lines.
struct EscapedUnit {
  using Wire = Sentinel<F32>;  // every word of a packet proves its own arrival
  using Data = Wire::Data;
  static constexpr uint32_t kPackets = kEscapedUnitPackets;
  static constexpr uint32_t kUnits = kEscapedGroupUnits;
  /// Of a group in scratch: its units' words, then their packets.
  static constexpr uint32_t kWordPackets = kUnits / 4;
  /// The word of a unit that is as it was.
  static constexpr uint32_t kAsItWas = 0xFFFFFFFE;

  /// Groups of a strip.
  SYMMETRA_DEVICE static uint32_t groups(uint32_t packets) { return (packets + kUnits * kPackets - 1) / (kUnits * kPackets); }
  /// Where packet `i` of a unit is in the strip.
  SYMMETRA_DEVICE static uint32_t packet(uint32_t unit, uint32_t i) {
    return unit / kUnits * (kUnits * kPackets) + i * kUnits + unit % kUnits;
  }
  /// Where it is in the slot.
  SYMMETRA_DEVICE static uint32_t place(uint32_t unit, uint32_t i) {
    return unit / kUnits * kEscapedGroupPackets + kWordPackets + i * kUnits + unit % kUnits;
  }
  /// Where the word of a unit is in the slot, in words.
  SYMMETRA_DEVICE static uint32_t word(uint32_t unit) { return unit / kUnits * (kEscapedGroupPackets * 4) + unit % kUnits; }

  Data data[kPackets];

  /// Replaces every word that looks like absence by one that the unit does not hold, and returns this one.
  SYMMETRA_DEVICE uint32_t escape() {
    if (!holds(Wire::kMissing)) return kAsItWas;
    // 16 words, one of which is the sentinel, leave one of 16 numbers.
    uint32_t instead = 0;
    while (holds(instead)) ++instead;
    replace(Wire::kMissing, instead);
    return instead;
  }
  /// Makes a unit what it was.
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
