// The expected results of an all-reduce, bit for bit, written independently of the kernels: halves go through double
// arithmetic instead of bit tricks.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/geometry.hpp"

namespace reference {

using Bits = uint64_t;  // an element's bits, of any type

/// A float of 16 or 8 bits: exponent bits, fraction bits, the bits of the greatest number, and whether larger numbers
/// become that number or infinity.
struct Format {
  int exponent;
  int fraction;
  Bits most;
  bool saturates;
};
constexpr Format kHalf{5, 10, 0x7BFF, false}, kBrain{8, 7, 0x7F7F, false}, kE4M3{4, 3, 0x7E, true}, kE5M2{5, 2, 0x7B, true};

inline Format format_of(uint32_t dtype) {
  using namespace symmetra::kernels;
  return dtype == kF16 ? kHalf : dtype == kBF16 ? kBrain : dtype == kF8E4M3 ? kE4M3 : kE5M2;
}

inline float decode(Format format, Bits bits) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int exponent = static_cast<int>(bits >> format.fraction) & ((1 << format.exponent) - 1);
  const int fraction = static_cast<int>(bits) & ((1 << format.fraction) - 1);
  const Bits sign = Bits{1} << (format.exponent + format.fraction);
  double value;
  if ((bits & (sign - 1)) > format.most) {
    value = fraction != 0 ? std::nan("") : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - format.fraction);
  } else {
    value = std::ldexp((1 << format.fraction) + fraction, exponent - bias - format.fraction);
  }
  return static_cast<float>(bits & sign ? -value : value);
}

inline Bits encode(Format format, float value) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const Bits top = Bits{1} << (format.exponent + format.fraction);
  if (std::isnan(value)) return top - 1;
  const Bits sign = std::signbit(value) ? top : 0;
  const double size = std::fabs(static_cast<double>(value));
  const Bits beyond = format.saturates ? format.most : ((Bits{1} << format.exponent) - 1) << format.fraction;
  if (std::isinf(size)) return sign | beyond;
  if (size == 0) return sign;
  int exponent = std::ilogb(size);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // nearbyint rounds to nearest even in the default mode.
  const auto steps = static_cast<Bits>(std::nearbyint(std::ldexp(size, format.fraction - exponent)));
  const Bits bits = (static_cast<Bits>(exponent + bias - 1) << format.fraction) + steps;
  return sign | (bits > format.most ? beyond : bits);
}

template <class To, class From>
To cast(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// Whether an element is an integer with a sign.
inline bool is_signed(uint32_t dtype) {
  using namespace symmetra::kernels;
  return dtype == kI8 || dtype == kI32 || dtype == kI64;
}

/// The floating types.
constexpr uint32_t kFloats[] = {symmetra::kernels::kF32,  symmetra::kernels::kF64,    symmetra::kernels::kF16,
                                symmetra::kernels::kBF16, symmetra::kernels::kF8E4M3, symmetra::kernels::kF8E5M2};

inline bool is_float(uint32_t dtype) { return std::find(std::begin(kFloats), std::end(kFloats), dtype) != std::end(kFloats); }

/// The reduction of values in rank order, computed in their type.
template <class Value>
Value floats(uint32_t reduction, const std::vector<Value>& ranks) {
  using namespace symmetra::kernels;
  Value result = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Value next = ranks[r];
    if (reduction == kMin || reduction == kMax) {
      const bool keeps = std::isnan(result) || (!std::isnan(next) && (reduction == kMin) == (result < next));
      const bool zeros = result == 0 && next == 0;
      if (zeros) {
        result = std::signbit(result) == (reduction == kMin) ? result : next;
      } else {
        result = keeps ? result : next;
      }
    } else {
      result = reduction == kProduct ? result * next : result + next;
    }
  }
  return reduction == kAverage ? result / static_cast<Value>(ranks.size()) : result;
}

/// The reduction of integers: exact, in 128 bits, except sums and products, which wrap.
inline Bits integers(uint32_t dtype, uint32_t reduction, uint32_t bytes, const std::vector<Bits>& ranks) {
  using namespace symmetra::kernels;
  const auto value = [&](Bits bits) {
    const __int128 all = bits;
    return is_signed(dtype) && bits >> (8 * bytes - 1) & 1 ? all - (static_cast<__int128>(1) << 8 * bytes) : all;
  };
  __int128 result = value(ranks[0]);
  Bits product = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r) {
    const __int128 next = value(ranks[r]);
    product *= ranks[r];
    if (reduction == kMin) {
      result = next < result ? next : result;
    } else if (reduction == kMax) {
      result = next > result ? next : result;
    } else {
      result += next;
    }
  }
  if (reduction == kProduct) result = product;
  if (reduction == kAverage) {
    const auto wrapped = static_cast<Bits>(result);
    result = is_signed(dtype) ? static_cast<__int128>(static_cast<int64_t>(wrapped)) : static_cast<__int128>(wrapped);
    result /= static_cast<__int128>(ranks.size());
  }
  const Bits mask = ~Bits{0} >> (64 - 8 * bytes);
  return static_cast<Bits>(result) & mask;
}

/// The reduction of one element over ranks, in rank order.
inline Bits reduce(uint32_t dtype, uint32_t reduction, uint32_t bytes, const std::vector<Bits>& ranks) {
  using namespace symmetra::kernels;
  if (!is_float(dtype)) return integers(dtype, reduction, bytes, ranks);
  if (dtype == kF64) {
    std::vector<double> values;
    for (Bits bits : ranks) values.push_back(cast<double>(bits));
    const double result = floats(reduction, values);
    return std::isnan(result) ? 0x7FF8000000000000 : cast<Bits>(result);
  }
  const Format format = format_of(dtype);
  std::vector<float> values;
  for (Bits bits : ranks) values.push_back(dtype == kF32 ? cast<float>(static_cast<uint32_t>(bits)) : decode(format, bits));
  const float result = floats(reduction, values);
  if (dtype == kF32) return std::isnan(result) ? 0x7FFFFFFF : cast<uint32_t>(result);
  return encode(format, result);
}

/// Reduces two of several values: a partial sum is not divided.
inline Bits pair(uint32_t dtype, uint32_t reduction, Bits first, Bits second) {
  using namespace symmetra::kernels;
  return reduce(dtype, reduction == kAverage ? kSum : reduction, element_bytes(dtype), {first, second});
}

/// The last two of `world`: the average is rounded once with the last sum.
inline Bits last_pair(uint32_t dtype, uint32_t reduction, Bits first, Bits second, size_t world) {
  using namespace symmetra::kernels;
  if (reduction != kAverage) return pair(dtype, reduction, first, second);
  if (dtype == kF64) {
    const double average = (cast<double>(first) + cast<double>(second)) / static_cast<double>(world);
    return std::isnan(average) ? 0x7FF8000000000000 : cast<Bits>(average);
  }
  const Format format = format_of(dtype);
  const auto value = [&](Bits bits) { return dtype == kF32 ? cast<float>(static_cast<uint32_t>(bits)) : decode(format, bits); };
  const float average = (value(first) + value(second)) / static_cast<float>(world);
  if (dtype == kF32) return std::isnan(average) ? 0x7FFFFFFF : cast<uint32_t>(average);
  return encode(format, average);
}

/// The reduction of a ring, of element `i` of `count`: from the rank with the number of its chunk round to the previous
/// rank, rounded at each.
inline Bits ring(uint32_t dtype, uint32_t reduction, const std::vector<Bits>& ranks, uint64_t i, uint64_t count) {
  const uint64_t world = ranks.size(), packet = 16 / symmetra::kernels::element_bytes(dtype), packets = (count + packet - 1) / packet;
  const uint64_t chunk = i / packet / ((packets + world - 1) / world);
  Bits total = ranks[chunk];
  for (uint64_t r = 1; r + 1 < world; ++r) total = pair(dtype, reduction, total, ranks[(chunk + r) % world]);
  return last_pair(dtype, reduction, total, ranks[(chunk + world - 1) % world], world);
}

/// The reduction by recursive doubling: ranks beyond the largest power of two join the first,
/// then neighbours, then neighbouring pairs... rounded every time.
inline Bits doubling(uint32_t dtype, uint32_t reduction, std::vector<Bits> ranks) {
  const size_t world = ranks.size();
  size_t core = 1;
  while (2 * core <= world) core *= 2;
  for (size_t r = core; r < world; ++r) ranks[r - core] = pair(dtype, reduction, ranks[r - core], ranks[r]);
  for (; core > 2; core /= 2) {
    for (size_t r = 0; r < core / 2; ++r) ranks[r] = pair(dtype, reduction, ranks[2 * r], ranks[2 * r + 1]);
  }
  return last_pair(dtype, reduction, ranks[0], ranks[1], world);
}

/// The expected result of an algorithm for element `i` of `count`.
inline Bits result(uint32_t algorithm, uint32_t dtype, uint32_t reduction, const std::vector<Bits>& ranks, uint64_t i, uint64_t count) {
  using namespace symmetra::kernels;
  if (algorithm == kRing) return ring(dtype, reduction, ranks, i, count);
  if (algorithm == kRecursiveDoubling) return doubling(dtype, reduction, ranks);
  return reduce(dtype, reduction, element_bytes(dtype), ranks);
}

}  // namespace reference
