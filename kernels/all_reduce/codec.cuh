// Codecs: groups of values as codes of a few bits and a scale. A value is its code times the scale of its group.
//
// A unit is 256 values, eight groups of 32. Its payload is the codes, packed bit by bit, the first lowest; behind it is
// one packet of eight scales in bf16. No 32-bit word of a unit is 0xFFFFFFFF, because a code of all ones does not occur
// and a scale has no sign. So a unit travels in sentinel packets as it is.
#pragma once
#include "kernels/geometry.hpp"
#include "kernels/numeric/narrow.cuh"

namespace symmetra::kernels {

/// The values of a group.
using GroupValues = float[kGroupElems];

/// The least scale, 2^-126: its reciprocal is finite.
constexpr float kLeastScale = 0x1p-126f;
/// The scale of a group that holds a NaN, an infinity or a value so large that the largest code would decode to infinity.
constexpr uint32_t kScaleOfNan = 0x7FFF;
/// The bits of infinity in single precision.
constexpr uint32_t kInfinity = 0x7F800000;

/// Integers of kBitsOfCode bits: a value times 1 / scale, rounded to nearest even, is sent as its distance from -kMost.
/// Codes come in pairs, the first in the lowest bits.
template <uint32_t kBitsOfCode>
struct IntegerCode {
  static constexpr uint32_t kBits = kBitsOfCode;
  static constexpr float kMost = (1 << (kBits - 1)) - 1;

  /// The values are at most kMost in size, but for a rounding.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) { return encode(pair.low) | encode(pair.high) << kBits; }
  /// Ignores bits above the codes.
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

/// The places of a pair of codes in the words of a group.
template <uint32_t kBits>
struct PairPlace {
  uint32_t word, shift;
  SYMMETRA_DEVICE explicit PairPlace(uint32_t pair) : word(pair * 2 * kBits / 32), shift(pair * 2 * kBits % 32) {}
  /// Whether the pair goes on in the next word.
  SYMMETRA_DEVICE bool crosses() const { return shift + 2 * kBits > 32; }
};

/// Encodes group `group` of the unit at `unit`, in memory of the block.
template <class Code>
SYMMETRA_DEVICE void encode_group(const GroupValues& values, uint8_t* unit, uint32_t group) {
  constexpr uint32_t kBits = Code::kBits;
  uint32_t most = 0;  // as bits, which are in the order of sizes; NaNs are greater than infinity
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kGroupElems; ++i) {
    const uint32_t size = platform::bits_of(values[i]) & 0x7FFFFFFF;
    most = size > most ? size : most;
  }
  const float least = platform::f32_of(most) / Code::kMost;
  const uint32_t covering = narrow::bf16_up(least > kLeastScale ? least : kLeastScale);
  const bool finite = most < kInfinity && platform::bits_of(platform::f32_of(covering << 16) * Code::kMost) < kInfinity;
  const float inverse = 1.0f / platform::f32_of(covering << 16);
  uint32_t words[kBits] = {};
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kGroupElems / 2; ++i) {
    const PairPlace<kBits> place(i);
    const uint32_t codes = Code::pack({values[2 * i] * inverse, values[2 * i + 1] * inverse});
    words[place.word] |= codes << place.shift;
    if (place.crosses()) words[place.word + 1] |= codes >> (32 - place.shift);
  }
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kBits; ++i) platform::store_shared(unit + 4 * (group * kBits + i), finite ? words[i] : 0);
  platform::store_shared(unit + kUnitElems * kBits / 8 + 2 * group, static_cast<uint16_t>(finite ? covering : kScaleOfNan));
}

/// Adds the values of group `group` of the unit at `unit`, in memory of the block, to `total`.
template <class Code>
SYMMETRA_DEVICE void add_group(const uint8_t* unit, uint32_t group, GroupValues& total) {
  constexpr uint32_t kBits = Code::kBits;
  const uint32_t scale_bits = platform::load_shared<uint16_t>(unit + kUnitElems * kBits / 8 + 2 * group);
  const float scale = platform::f32_of(scale_bits << 16);
  uint32_t words[kBits];
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kBits; ++i) words[i] = platform::load_shared<uint32_t>(unit + 4 * (group * kBits + i));
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kGroupElems / 2; ++i) {
    const PairPlace<kBits> place(i);
    uint32_t codes = words[place.word] >> place.shift;
    if (place.crosses()) codes |= words[place.word + 1] << (32 - place.shift);
    const platform::Pair pair = Code::unpack(codes);
    total[2 * i] += pair.low * scale;  // the product is exact
    total[2 * i + 1] += pair.high * scale;
  }
}

/// A codec, chosen at run time; all threads branch alike. One kernel serves all codecs, to keep the number of kernels
/// small.
class Codec {
 public:
  SYMMETRA_DEVICE explicit Codec(uint32_t number) : number_(number) {
    with_code([&](auto code) { packets_ = kUnitElems * decltype(code)::kBits / 128 + 1; });
  }

  /// Packets of a unit.
  SYMMETRA_DEVICE uint32_t packets() const { return packets_; }

  SYMMETRA_DEVICE void encode(const GroupValues& values, uint8_t* unit, uint32_t group) const {
    with_code([&](auto code) { encode_group<decltype(code)>(values, unit, group); });
  }
  SYMMETRA_DEVICE void add(const uint8_t* unit, uint32_t group, GroupValues& total) const {
    with_code([&](auto code) { add_group<decltype(code)>(unit, group, total); });
  }

 private:
  template <class Body>
  SYMMETRA_DEVICE void with_code(Body body) const {
    switch (number_) {
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

  uint32_t number_;
  uint32_t packets_ = 0;
};

}  // namespace symmetra::kernels
