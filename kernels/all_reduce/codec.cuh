// Codecs: groups of values as quantised values of a few bits and a scale. A value is its quantised value times the
// scale of its group.
//
// A unit is 512 values, 16 groups of 32. It has 32 lanes of 16 values: lane l has values 8 l to 8 l + 7 of the unit's
// first half, and the same values of the second half. So four consecutive lanes have a group of each half. A lane is
// encoded as its quantised values, packed bit by bit, the first lowest, and a word of both groups' scales in bf16. None
// of its words is 0xFFFFFFFF, because a quantised value of all ones does not occur and a scale has no sign. So a lane
// proves its own arrival.
#pragma once
#include "kernels/geometry.hpp"
#include "kernels/numeric/narrow.cuh"

namespace symmetra::kernels {

/// Values that are encoded at once. Their quantised values are whole bytes.
constexpr uint32_t kOctetElems = 8;
/// The values of an octet.
using Octet = float[kOctetElems];
/// Lanes of a unit.
constexpr uint32_t kUnitLanes = kUnitElems / kOctetElems / 2;
/// Consecutive lanes that have a group of each half.
constexpr uint32_t kGroupLanes = kGroupElems / kOctetElems;
/// The values of a lane, in both halves of the unit.
using LaneValues = Octet[2];

/// The least scale, 2^-126: its reciprocal is finite.
constexpr float kLeastScale = 0x1p-126f;
/// The scale of a group with a NaN, an infinity, or a value so large that the largest quantised value would decode to
/// infinity.
constexpr uint32_t kScaleOfNan = 0x7FFF;
/// The bits of infinity in single precision.
constexpr uint32_t kInfinity = 0x7F800000;

/// Integers of kBitsOfCode bits: a value times 1 / scale, rounded to nearest even, is sent as its distance from -kMost.
/// Quantised values come in pairs, the first in the lowest bits.
template <uint32_t kBitsOfCode>
struct IntegerCode {
  static constexpr uint32_t kBits = kBitsOfCode;
  static constexpr float kMost = (1 << (kBits - 1)) - 1;

  /// The absolute values are at most kMost, except for a rounding.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) { return encode(pair.low) | encode(pair.high) << kBits; }
  /// Ignores bits above the quantised values.
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t codes) { return {decode(codes & kMask), decode(codes >> kBits & kMask)}; }

 private:
  static constexpr uint32_t kMask = (1u << kBits) - 1;
  /// 1.5 x 2^23, and its bits. The floats around it are the integers, so a sum with it rounds to an integer.
  static constexpr float kSum = 12582912.0f;
  static constexpr uint32_t kSumBits = 0x4B400000;

  SYMMETRA_DEVICE static uint32_t encode(float value) {
    return platform::bits_of(value + kSum) - (kSumBits - static_cast<uint32_t>(kMost));
  }
  SYMMETRA_DEVICE static float decode(uint32_t code) { return platform::f32_of(kSumBits + code) - (kSum + kMost); }
};

/// The largest absolute value of an octet, as bits, which have the order of absolute values; NaNs are greater than
/// infinity.
SYMMETRA_DEVICE uint32_t most_of(const Octet& values) {
  uint32_t most = 0;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kOctetElems; ++i) {
    const uint32_t size = platform::bits_of(values[i]) & 0x7FFFFFFF;
    most = size > most ? size : most;
  }
  return most;
}

/// The transferred form of a lane.
template <class Code>
struct EncodedLane {
  /// Bits of an octet's quantised values, and words of a lane's.
  static constexpr uint32_t kOctetBits = kOctetElems * Code::kBits, kWords = 2 * kOctetBits / 32;

  uint32_t codes[kWords];
  uint32_t scales;  ///< of the group in the first half, in the low bits, and of that in the second
};

/// The quantised values of an octet and the scale of its group. `most`: the largest absolute value of the group, from
/// most_of.
template <class Code>
SYMMETRA_DEVICE uint64_t encode_octet(const Octet& values, uint32_t most, uint32_t& scale) {
  const float least = platform::f32_of(most) / Code::kMost;
  const uint32_t covering = narrow::bf16_up(least > kLeastScale ? least : kLeastScale);
  const bool finite = most < kInfinity && platform::bits_of(platform::f32_of(covering << 16) * Code::kMost) < kInfinity;
  const float inverse = 1.0f / platform::f32_of(covering << 16);
  scale = finite ? covering : kScaleOfNan;
  uint64_t codes = 0;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kOctetElems / 2; ++i) {
    codes |= uint64_t{Code::pack({values[2 * i] * inverse, values[2 * i + 1] * inverse})} << (2 * Code::kBits * i);
  }
  return finite ? codes : 0;
}

/// `most`: the largest absolute values of the groups of the lane, from most_of.
template <class Code>
SYMMETRA_DEVICE EncodedLane<Code> encode(const LaneValues& values, const uint32_t (&most)[2]) {
  using Lane = EncodedLane<Code>;
  uint32_t scales[2];
  const uint64_t first = encode_octet<Code>(values[0], most[0], scales[0]), second = encode_octet<Code>(values[1], most[1], scales[1]);
  Lane lane;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < Lane::kWords; ++i) {
    const uint32_t bit = 32 * i;
    if (bit >= Lane::kOctetBits) {
      lane.codes[i] = static_cast<uint32_t>(second >> (bit - Lane::kOctetBits));
    } else {
      lane.codes[i] = static_cast<uint32_t>(first >> bit);
      if (bit + 32 > Lane::kOctetBits) lane.codes[i] |= static_cast<uint32_t>(second << (Lane::kOctetBits - bit));
    }
  }
  lane.scales = scales[0] | scales[1] << 16;
  return lane;
}

/// Adds the values of a lane to `totals`.
template <class Code>
SYMMETRA_DEVICE void add(const EncodedLane<Code>& lane, LaneValues& totals) {
  using Lane = EncodedLane<Code>;
  SYMMETRA_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const float scale = platform::f32_of(half == 0 ? lane.scales << 16 : lane.scales & 0xFFFF0000);
    const uint32_t bit = half * Lane::kOctetBits, word = bit / 32;
    uint64_t codes = lane.codes[word];
    if (word + 1 < Lane::kWords) codes |= uint64_t{lane.codes[word + 1]} << 32;
    codes >>= bit % 32;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kOctetElems; i += 2) {
      const platform::Pair pair = Code::unpack(static_cast<uint32_t>(codes >> (Code::kBits * i)));
      totals[half][i] = platform::add_exact_product(pair.low, scale, totals[half][i]);
      totals[half][i + 1] = platform::add_exact_product(pair.high, scale, totals[half][i + 1]);
    }
  }
}

/// Calls `body` with the implementation of a codec, and returns its result.
template <class Body>
auto with_code(uint32_t codec, Body body) {
  switch (codec) {
    case kCodecFp8:
      return body(narrow::E4M3{});
    case kCodecInt8:
      return body(IntegerCode<8>{});
    case kCodecInt6:
      return body(IntegerCode<6>{});
    default:
      return body(IntegerCode<4>{});
  }
}

}  // namespace symmetra::kernels
