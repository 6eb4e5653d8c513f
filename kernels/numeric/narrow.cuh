// Narrow formats of values and of scales: quantised values ("codes") of eight or four bits, scales of one byte, scales
// in bf16. Encoders round to nearest even and saturate. Decoded values are exact in single precision.
//
// A format converts pairs of values: the first is in the lowest bits. Its `pack` is an instruction if the chip has one;
// `encode`, of one value, is integer arithmetic on every chip, and gives equal bits.
#pragma once
#include "kernels/words.cuh"

namespace symmetra::kernels::narrow {

/// The NaN that decoders of scales give.
constexpr uint32_t kNanF32 = 0x7FFFFFFF;

/// A floating format: a bit of sign, kExponent bits with the usual bias, kFraction bits. kLargest is the code of the
/// largest finite value, to which larger ones and infinities saturate; kNan the code of every NaN. A format without NaN
/// has kNan == kLargest.
template <uint32_t kExponent, uint32_t kFraction, uint32_t kLargest, uint32_t kNan>
struct Floating {
  static constexpr uint32_t kBits = 1 + kExponent + kFraction;

  SYMMETRA_DEVICE static uint32_t encode(float value) {
    const uint32_t bits = platform::bits_of(value);
    const uint32_t sign = bits >> 31 << (kBits - 1), size = bits & 0x7FFFFFFF;
    const uint32_t held = size < kLargestF32 ? size : kLargestF32;
    // A sum with kDenormalSum rounds at the step of denormals.
    const uint32_t denormal = platform::bits_of(platform::f32_of(held) + platform::f32_of(kDenormalSum)) - kDenormalSum;
    const uint32_t normal = (held - kRebias + ((1u << (kShift - 1)) - 1) + (held >> kShift & 1)) >> kShift;
    const uint32_t code = sign | (held < kNormalF32 ? denormal : normal);
    return size > 0x7F800000 ? kNan : code;
  }

  /// Ignores bits above the code.
  SYMMETRA_DEVICE static float decode(uint32_t code) {
    const uint32_t sign = code >> (kBits - 1) << 31, size = code & ((1u << (kBits - 1)) - 1);
    const uint32_t denormal = platform::bits_of(static_cast<float>(size) * platform::f32_of(kStepF32));
    const uint32_t normal = (size << kShift) + kRebias;
    const uint32_t bits = sign | (size < 1u << kFraction ? denormal : normal);
    return platform::f32_of(size > kLargest ? kNanF32 : bits);
  }

  /// The bits of the largest finite value in single precision.
  static constexpr uint32_t kLargestF32 = (kLargest << (23 - kFraction)) + ((128u - (1u << (kExponent - 1))) << 23);

 private:
  static constexpr uint32_t kBias = (1u << (kExponent - 1)) - 1;
  static constexpr uint32_t kShift = 23 - kFraction;            ///< bits by which a fraction is shortened
  static constexpr uint32_t kRebias = (127 - kBias) << 23;      ///< difference between the exponents
  static constexpr uint32_t kNormalF32 = kRebias + (1u << 23);  ///< the least normal value
  static constexpr uint32_t kStepF32 = (128 - kBias - kFraction) << 23;
  static constexpr uint32_t kDenormalSum = kStepF32 + (23u << 23);
};

/// e4m3 of the OCP (e4m3fn): no infinities, NaN 0x7F and 0xFF; encoders return 0x7F.
struct E4M3 : Floating<4, 3, 0x7E, 0x7F> {
  static constexpr float kMost = 448;
  /// Two codes, in the low 16 bits; the others are zero.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) {
#ifdef SYMMETRA_CONVERTS_F8
    return platform::pack_e4m3(pair);
#else
    return encode(pair.low) | encode(pair.high) << 8;
#endif
  }
  /// Two values, from the low 16 bits. NaNs may differ in payload between platforms.
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t codes) {
#ifdef SYMMETRA_CONVERTS_F8
    return platform::unpack_e4m3(codes);
#else
    return {decode(codes), decode(codes >> 8)};
#endif
  }
};

/// e5m2 of the OCP: the upper byte of an f16. Decoders support its infinities and all its NaNs; encoders saturate, and
/// return the NaN 0x7F.
struct E5M2 : Floating<5, 2, 0x7B, 0x7F> {
  static constexpr float kMost = 57344;
  /// Two codes, in the low 16 bits; the others are zero.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) {
#ifdef SYMMETRA_CONVERTS_F8
    return platform::pack_e5m2(pair);
#else
    return encode(pair.low) | encode(pair.high) << 8;
#endif
  }
  /// Two values, from the low 16 bits. NaNs may differ in payload between platforms.
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t codes) {
    return platform::unpack_f16((codes & 0xFF) << 8 | (codes & 0xFF00) << 16);
  }
  static float decode(uint32_t code) = delete;  // instead of that of Floating, which has no infinities
};

/// e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Has no NaN: a NaN becomes 6.
struct E2M1 : Floating<2, 1, 7, 7> {
  static constexpr float kMost = 6;
  /// Two codes, in the low eight bits; the others are zero.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) {
#ifdef SYMMETRA_CONVERTS_F4
    return platform::pack_e2m1(pair);
#else
    return encode(pair.low) | encode(pair.high) << 4;
#endif
  }
  /// Two values, from the low eight bits.
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t codes) { return {decode(codes), decode(codes >> 4)}; }
};

/// The nearest whole number, ties to even, not less than `least` nor more than `most`, which are within 2^22 of zero.
/// NaN gives 0.
SYMMETRA_DEVICE int32_t whole(float value, int32_t least, int32_t most) {
  constexpr uint32_t kSum = 0x4B400000;  // 1.5 * 2^23: a sum with it rounds at 1
  const float low = static_cast<float>(least), high = static_cast<float>(most);
  const float held = value > low ? (value < high ? value : high) : low;
  const auto number = static_cast<int32_t>(platform::bits_of(held + platform::f32_of(kSum)) - kSum);
  return value != value ? 0 : number;
}

/// Signed bytes, -128 to 127. Has no NaN: a NaN becomes 0.
struct Int8 {
  static constexpr uint32_t kBits = 8;
  static constexpr float kMost = 127;
  SYMMETRA_DEVICE static uint32_t encode(float value) { return static_cast<uint32_t>(whole(value, -128, 127)) & 0xFF; }
  /// Two codes, in the low 16 bits; the others are zero.
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) { return encode(pair.low) | encode(pair.high) << 8; }
  /// Two values, from the low 16 bits.
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t codes) {
    return {static_cast<float>(static_cast<int8_t>(codes)), static_cast<float>(static_cast<int8_t>(codes >> 8))};
  }
};

/// Codes in a word.
template <class Format>
constexpr uint32_t kPerWord = 32 / Format::kBits;

/// A word of codes, the first in the lowest bits.
template <class Format>
SYMMETRA_DEVICE uint32_t pack_word(const float (&values)[kPerWord<Format>]) {
  uint32_t word = 0;
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kPerWord<Format>; i += 2) word |= Format::pack({values[i], values[i + 1]}) << i * Format::kBits;
  return word;
}

/// The values of a word of codes.
template <class Format>
SYMMETRA_DEVICE void unpack_word(uint32_t word, float (&values)[kPerWord<Format>]) {
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kPerWord<Format>; i += 2) {
    const platform::Pair pair = Format::unpack(word >> i * Format::kBits);
    values[i] = pair.low;
    values[i + 1] = pair.high;
  }
}

/// Scales of one byte, e8m0: byte b is 2^(b - 127), and 255 is NaN.
struct E8M0 {
  static constexpr uint32_t kNan = 255;

  /// The smallest scale for which no absolute value up to `most` exceeds the largest value of Format: 2^e with the
  /// smallest e, at least -127, such that most <= Format::kMost * 2^e. NaN if `most`, which has no sign, is NaN or
  /// infinite.
  template <class Format>
  SYMMETRA_DEVICE static uint32_t covering(float most) {
    constexpr uint32_t kExponent = Format::kLargestF32 >> 23, kFraction = Format::kLargestF32 & 0x7FFFFF;
    const uint32_t bits = platform::bits_of(most);
    // The sum carries into the exponent where the fraction is beyond kFraction.
    const uint32_t exponent = (bits + (0x7FFFFF - kFraction)) >> 23;
    const uint32_t byte = exponent + 127 > kExponent ? exponent + 127 - kExponent : 0;
    return (bits & 0x7FFFFFFF) >= 0x7F800000 ? kNan : byte;
  }
  SYMMETRA_DEVICE static float decode(uint32_t byte) {
    return platform::f32_of(byte == kNan ? kNanF32 : byte == 0 ? 0x00400000 : byte << 23);
  }
  /// One divided by the scale: exact.
  SYMMETRA_DEVICE static float inverse(uint32_t byte) { return decode(byte == kNan ? kNan : 254 - byte); }
};

/// The bits of the smallest bf16 that is not below `value`, which has no sign. Above the largest finite bf16 the result
/// is infinity. NaN gives 0x7FFF.
SYMMETRA_DEVICE uint32_t bf16_up(float value) { return value != value ? 0x7FFF : (platform::bits_of(value) + 0xFFFF) >> 16; }

}  // namespace symmetra::kernels::narrow
