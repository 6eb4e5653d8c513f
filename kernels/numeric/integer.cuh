// Integer element types: their layout in packets, and the arithmetic of their reductions. Everything is computed in 64
// bits: results wrap as in the type itself, and an average of a narrower type has an exact sum.
#pragma once
#include "kernels/words.cuh"

namespace symmetra::kernels {

/// Arithmetic in the 64-bit `Type`; overflow wraps.
template <class Type>
struct WrappingInteger {
  using Value = Type;  ///< the type in which reductions are computed
  static constexpr bool kFloating = false;

  SYMMETRA_DEVICE static Value plus(Value a, Value b) { return static_cast<Value>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
  SYMMETRA_DEVICE static Value times(Value a, Value b) { return static_cast<Value>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
  SYMMETRA_DEVICE static Value least(Value a, Value b) { return a < b ? a : b; }
  SYMMETRA_DEVICE static Value greatest(Value a, Value b) { return a > b ? a : b; }
  /// Truncates toward zero.
  SYMMETRA_DEVICE static Value over(Value total, uint32_t world) { return total / static_cast<Value>(world); }
};

/// One or several values per word; Native widens to Type with its sign.
template <class Native, class Unsigned, class Type>
struct NarrowInteger : WrappingInteger<Type> {
  using Bits = Unsigned;
  using Value = Type;
  static constexpr uint32_t kBytes = sizeof(Bits);
  static constexpr uint32_t kPerWord = 4 / kBytes;

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[kPerWord * kWords]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kPerWord * kWords; ++i) {
      values[i] = static_cast<Value>(static_cast<Native>(data.word[i / kPerWord] >> i % kPerWord * 8 * kBytes));
    }
  }
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[kPerWord * kWords]) {
    Words<kWords> data{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kPerWord * kWords; ++i) {
      data.word[i / kPerWord] |= static_cast<uint32_t>(static_cast<Bits>(values[i])) << i % kPerWord * 8 * kBytes;
    }
    return data;
  }
};

struct I8 : NarrowInteger<int8_t, uint8_t, int64_t> {};
struct U8 : NarrowInteger<uint8_t, uint8_t, uint64_t> {};
struct I32 : NarrowInteger<int32_t, uint32_t, int64_t> {};
struct U32 : NarrowInteger<uint32_t, uint32_t, uint64_t> {};

/// One value per two words.
template <class Type>
struct LongInteger : WrappingInteger<Type> {
  using Bits = uint64_t;
  using Value = Type;
  static constexpr uint32_t kBytes = sizeof(Bits);

  template <uint32_t kWords>
  SYMMETRA_DEVICE static void unpack(const Words<kWords>& data, Value (&values)[kWords / 2]) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords / 2; ++i) values[i] = static_cast<Value>(uint64_t{data.word[2 * i + 1]} << 32 | data.word[2 * i]);
  }
  template <uint32_t kWords>
  SYMMETRA_DEVICE static Words<kWords> pack(const Value (&values)[kWords / 2]) {
    Words<kWords> data;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords / 2; ++i) {
      data.word[2 * i] = static_cast<uint32_t>(values[i]);
      data.word[2 * i + 1] = static_cast<uint32_t>(static_cast<uint64_t>(values[i]) >> 32);
    }
    return data;
  }
};

struct I64 : LongInteger<int64_t> {};
struct U64 : LongInteger<uint64_t> {};

}  // namespace symmetra::kernels
