// Element types and their sums. Sums run in rank order from the first rank's value
// and round once, so that every algorithm gives the same bits on every platform.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// The data of one packet, as 32-bit words.
template <uint32_t kWords>
struct alignas(4 * kWords) Words {
  uint32_t word[kWords];
};

/// One 32-bit sum a word.
struct F32 {
  using Bits = uint32_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = true, kSpecialised = true;
  /// Sentinels: a NaN in place of the word that cannot be sent, and how often a word is one.
  static constexpr uint32_t kQuietNan = 0x7FFFFFFF, kSentinelStep = 1;

  template <uint32_t kWords>
  struct Sum {
    float total[kWords];
    SYMMETRA_DEVICE void start(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) total[i] = platform::f32_of(data.word[i]);
    }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) total[i] += platform::f32_of(data.word[i]);
    }
    /// One NaN for all: platforms differ in the payloads they hand on.
    SYMMETRA_DEVICE Words<kWords> round() const {
      Words<kWords> data;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) data.word[i] = total[i] != total[i] ? kQuietNan : platform::bits_of(total[i]);
      return data;
    }
  };
};

/// Two f32 sums a word; Format converts both ways.
template <class Format>
struct HalfSum {
  template <uint32_t kWords>
  struct Sum {
    platform::Pair total[kWords];
    SYMMETRA_DEVICE void start(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) total[i] = Format::unpack(data.word[i]);
    }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) {
        const platform::Pair pair = Format::unpack(data.word[i]);
        total[i].low += pair.low;
        total[i].high += pair.high;
      }
    }
    SYMMETRA_DEVICE Words<kWords> round() const {
      Words<kWords> data;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) data.word[i] = Format::pack(total[i]);
      return data;
    }
  };
};

struct F16 : HalfSum<F16> {
  using Bits = uint16_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = true, kSpecialised = true;
  static constexpr uint32_t kQuietNan = 0x7FFF7FFF, kSentinelStep = 1;
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t word) { return platform::unpack_f16(word); }
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) { return platform::pack_f16(pair); }
};

struct BF16 : HalfSum<BF16> {
  using Bits = uint16_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = true, kSpecialised = true;
  static constexpr uint32_t kQuietNan = 0x7FFF7FFF, kSentinelStep = 1;
  SYMMETRA_DEVICE static platform::Pair unpack(uint32_t word) { return platform::unpack_bf16(word); }
  SYMMETRA_DEVICE static uint32_t pack(platform::Pair pair) { return platform::pack_bf16(pair); }
};

/// One 64-bit sum every two words.
struct F64 {
  using Bits = uint64_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = true, kSpecialised = false;
  static constexpr uint32_t kQuietNan = 0x7FF80000, kSentinelStep = 2;

  template <uint32_t kWords>
  struct Sum {
    double total[kWords / 2];
    SYMMETRA_DEVICE void start(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) total[i] = platform::f64_of(data.word[2 * i], data.word[2 * i + 1]);
    }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) total[i] += platform::f64_of(data.word[2 * i], data.word[2 * i + 1]);
    }
    SYMMETRA_DEVICE Words<kWords> round() const {
      Words<kWords> data;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) {
        const uint64_t bits = total[i] != total[i] ? uint64_t{kQuietNan} << 32 : platform::bits_of(total[i]);
        data.word[2 * i] = static_cast<uint32_t>(bits);
        data.word[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
      }
      return data;
    }
  };
};

/// Integers wrap.
struct I32 {
  using Bits = uint32_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = false, kSpecialised = false;

  template <uint32_t kWords>
  struct Sum {
    Words<kWords> total;
    SYMMETRA_DEVICE void start(const Words<kWords>& data) { total = data; }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords; ++i) total.word[i] += data.word[i];
    }
    SYMMETRA_DEVICE Words<kWords> round() const { return total; }
  };
};

struct I64 {
  using Bits = uint64_t;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr bool kFloating = false, kSpecialised = false;

  template <uint32_t kWords>
  struct Sum {
    uint64_t total[kWords / 2];
    SYMMETRA_DEVICE static uint64_t value(const Words<kWords>& data, uint32_t i) {
      return uint64_t{data.word[2 * i + 1]} << 32 | data.word[2 * i];
    }
    SYMMETRA_DEVICE void start(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) total[i] = value(data, i);
    }
    SYMMETRA_DEVICE void add(const Words<kWords>& data) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) total[i] += value(data, i);
    }
    SYMMETRA_DEVICE Words<kWords> round() const {
      Words<kWords> data;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kWords / 2; ++i) {
        data.word[2 * i] = static_cast<uint32_t>(total[i]);
        data.word[2 * i + 1] = static_cast<uint32_t>(total[i] >> 32);
      }
      return data;
    }
  };
};

}  // namespace symmetra::kernels
