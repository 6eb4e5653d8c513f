// Floating element types: their layout in packets, and the arithmetic of their reductions.
#pragma once
#include "kernels/numeric/narrow.cuh"
#include "kernels/words.cuh"

namespace symmetra::kernels {

/// Arithmetic in `Type`. Platforms agree on all bits but the payloads of NaNs, which pack() makes equal.
template <class Type>
struct FloatingPoint {
  using Value = Type;  ///< the type in which reductions are computed
  static constexpr bool kFloating = true;

  SYMMETRA_DEVICE static Value plus(Value a, Value b) { return a + b; }
  SYMMETRA_DEVICE static Value times(Value a, Value b) { return a * b; }
  /// minimum and maximum of IEEE 754-2019: a NaN wins, and -0 is less than +0.
  SYMMETRA_DEVICE static Value least(Value a, Value b) {
    if (a != a) return a;
    if (a == b) return negative(a) ? a : b;
    return a < b ? a : b;
  }
  SYMMETRA_DEVICE static Value greatest(Value a, Value b) {
    if (a != a) return a;
    if (a == b) return negative(a) ? b : a;
    return a > b ? a : b;
  }
  SYMMETRA_DEVICE static Value over(Value total, uint32_t world) { return total / static_cast<Value>(world); }

 private:
  SYMMETRA_DEVICE static bool negative(Value value) { return platform::bits_of(value) >> (8 * sizeof(Value) - 1) != 0; }
};

/// One value per word.
struct F32 : FloatingPoint<float> {
  using Bits = uint32_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  /// Sentinels: the NaN that replaces a word that cannot be sent, and the distance in words between places where it can
  /// occur.
  static constexpr uint32_t kQuietNan = 0x7FFFFFFF, kSentinelStep = 1;

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[kWords]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) values[i] = platform::f32_of(data.word[i]);
  }
  /// Every NaN becomes one bit pattern, because platforms differ in the payloads they propagate.
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[kWords]) {
    Words<kWords> data;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) data.word[i] = values[i] != values[i] ? kQuietNan : platform::bits_of(values[i]);
    return data;
  }
};

/// Two values per word, computed in single precision. Format converts a pair both ways, with one bit pattern for NaN.
template <class Format>
struct Half : FloatingPoint<float> {
  using Bits = uint16_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr uint32_t kQuietNan = 0x7FFF7FFF, kSentinelStep = 1;

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[2 * kWords]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) {
      const platform::Pair pair = Format::unpack_pair(data.word[i]);
      values[2 * i] = pair.low;
      values[2 * i + 1] = pair.high;
    }
  }
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[2 * kWords]) {
    Words<kWords> data;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) data.word[i] = Format::pack_pair({values[2 * i], values[2 * i + 1]});
    return data;
  }
};

struct F16 : Half<F16> {
  SYMMETRA_DEVICE static platform::Pair unpack_pair(uint32_t word) { return platform::unpack_f16(word); }
  SYMMETRA_DEVICE static uint32_t pack_pair(platform::Pair pair) { return platform::pack_f16(pair); }
};

struct BF16 : Half<BF16> {
  SYMMETRA_DEVICE static platform::Pair unpack_pair(uint32_t word) { return platform::unpack_bf16(word); }
  SYMMETRA_DEVICE static uint32_t pack_pair(platform::Pair pair) { return platform::pack_bf16(pair); }
};

/// Four values per word, computed in single precision. Results saturate: they are never infinite.
template <class Format>
struct Quarter : FloatingPoint<float> {
  using Bits = uint8_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr uint32_t kQuietNan = 0x7F7F7F7F, kSentinelStep = 1;

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[4 * kWords]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 2 * kWords; ++i) {
      const platform::Pair pair = Format::unpack(data.word[i / 2] >> i % 2 * 16);
      values[2 * i] = pair.low;
      values[2 * i + 1] = pair.high;
    }
  }
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[4 * kWords]) {
    Words<kWords> data{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 2 * kWords; ++i) data.word[i / 2] |= Format::pack({values[2 * i], values[2 * i + 1]}) << i % 2 * 16;
    return data;
  }
};

struct F8E4M3 : Quarter<narrow::E4M3> {};
struct F8E5M2 : Quarter<narrow::E5M2> {};

/// One value per two words.
struct F64 : FloatingPoint<double> {
  using Bits = uint64_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr uint32_t kQuietNan = 0x7FF80000, kSentinelStep = 2;

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[kWords / 2]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords / 2; ++i) values[i] = platform::f64_of(data.word[2 * i], data.word[2 * i + 1]);
  }
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[kWords / 2]) {
    Words<kWords> data;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords / 2; ++i) {
      const uint64_t bits = values[i] != values[i] ? uint64_t{kQuietNan} << 32 : platform::bits_of(values[i]);
      data.word[2 * i] = static_cast<uint32_t>(bits);
      data.word[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
    }
    return data;
  }
};

}  // namespace symmetra::kernels
