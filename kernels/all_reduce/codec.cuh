// Codecs: groups of values as codes of a few bits and a scale. A value is its code times the scale of its group.
//
// A unit is 256 values, eight groups of 32. Its payload is the codes, packed bit by bit, the first lowest; behind it is
// one packet of eight scales in bf16. No 32-bit word of a unit is 0xFFFFFFFF, because a code of all ones does not occur
// and a scale has no sign. So a unit travels in sentinel packets as it is.
#pragma once
#include <type_traits>

#include "kernels/geometry.hpp"
#include "kernels/numeric/narrow.cuh"

namespace symmetra::kernels {

/// Values that are encoded at once. Their codes are whole bytes.
constexpr uint32_t kOctetElems = 8;
/// Octets of a group and of a unit.
constexpr uint32_t kGroupOctets = kGroupElems / kOctetElems, kUnitOctets = kUnitElems / kOctetElems;
/// The values of an octet.
using Octet = float[kOctetElems];

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

/// The size of the largest value of an octet, as bits, which are in the order of sizes; NaNs are greater than infinity.
SYMMETRA_DEVICE uint32_t most_of(const Octet& values) {
  uint32_t most = 0;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kOctetElems; ++i) {
    const uint32_t size = platform::bits_of(values[i]) & 0x7FFFFFFF;
    most = size > most ? size : most;
  }
  return most;
}

/// The codes of an octet, in memory of the block: kBits bytes.
template <uint32_t kBits>
struct Codes {
  using Part = std::conditional_t<kBits == 8, Words<2>, std::conditional_t<kBits == 4, uint32_t, uint16_t>>;
  static constexpr uint32_t kParts = kBits / sizeof(Part);
  static_assert(kParts * sizeof(Part) == kBits);

  SYMMETRA_DEVICE static void store(uint8_t* to, uint64_t codes) {
    if constexpr (kBits == 8) {
      platform::store_shared(to, Part{{static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)}});
    } else {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kParts; ++i) {
        platform::store_shared(to + i * sizeof(Part), static_cast<Part>(codes >> (8 * i * sizeof(Part))));
      }
    }
  }
  SYMMETRA_DEVICE static uint64_t load(const uint8_t* from) {
    if constexpr (kBits == 8) {
      const Part words = platform::load_shared<Part>(from);
      return uint64_t{words.word[1]} << 32 | words.word[0];
    } else {
      uint64_t codes = 0;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kParts; ++i) {
        codes |= uint64_t{platform::load_shared<Part>(from + i * sizeof(Part))} << (8 * i * sizeof(Part));
      }
      return codes;
    }
  }
};

/// Encodes octet `octet` of the unit at `unit`, in memory of the block. `most`: the largest of its group. The first octet
/// of a group writes the scale.
template <class Code>
SYMMETRA_DEVICE void encode_octet(const Octet& values, uint32_t most, uint8_t* unit, uint32_t octet) {
  constexpr uint32_t kBits = Code::kBits;
  const float least = platform::f32_of(most) / Code::kMost;
  const uint32_t covering = narrow::bf16_up(least > kLeastScale ? least : kLeastScale);
  const bool finite = most < kInfinity && platform::bits_of(platform::f32_of(covering << 16) * Code::kMost) < kInfinity;
  const float inverse = 1.0f / platform::f32_of(covering << 16);
  uint64_t codes = 0;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kOctetElems / 2; ++i) {
    codes |= uint64_t{Code::pack({values[2 * i] * inverse, values[2 * i + 1] * inverse})} << (2 * kBits * i);
  }
  Codes<kBits>::store(unit + octet * kBits, finite ? codes : 0);
  if (octet % kGroupOctets != 0) return;
  platform::store_shared(unit + kUnitElems * kBits / 8 + octet / kGroupOctets * 2, static_cast<uint16_t>(finite ? covering : kScaleOfNan));
}

/// Adds the values of octet `octet` of the unit at `unit`, in memory of the block, to `total`.
template <class Code>
SYMMETRA_DEVICE void add_octet(const uint8_t* unit, uint32_t octet, Octet& total) {
  constexpr uint32_t kBits = Code::kBits;
  const uint32_t scale_bits = platform::load_shared<uint16_t>(unit + kUnitElems * kBits / 8 + octet / kGroupOctets * 2);
  const float scale = platform::f32_of(scale_bits << 16);
  const uint64_t codes = Codes<kBits>::load(unit + octet * kBits);
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kOctetElems / 2; ++i) {
    const platform::Pair pair = Code::unpack(static_cast<uint32_t>(codes >> (2 * kBits * i)));
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

  SYMMETRA_DEVICE void encode(const Octet& values, uint32_t most, uint8_t* unit, uint32_t octet) const {
    with_code([&](auto code) { encode_octet<decltype(code)>(values, most, unit, octet); });
  }
  SYMMETRA_DEVICE void add(const uint8_t* unit, uint32_t octet, Octet& total) const {
    with_code([&](auto code) { add_octet<decltype(code)>(unit, octet, total); });
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
