// What an all-reduce must give, bit for bit, written without a look at the kernels:
// halves go through double arithmetic instead of bit tricks.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/args.hpp"

namespace reference {

using Bits = uint64_t;  // an element's bits, whatever its type

/// Exponent bits and fraction bits of a 16-bit float.
struct Format {
  int exponent;
  int fraction;
};
constexpr Format kHalf{5, 10}, kBrain{8, 7};

inline float decode(Format format, Bits bits) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int exponent = static_cast<int>(bits >> format.fraction) & ((1 << format.exponent) - 1);
  const int fraction = static_cast<int>(bits) & ((1 << format.fraction) - 1);
  double value;
  if (exponent == (1 << format.exponent) - 1) {
    value = fraction != 0 ? std::nan("") : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - format.fraction);
  } else {
    value = std::ldexp((1 << format.fraction) + fraction, exponent - bias - format.fraction);
  }
  return static_cast<float>(bits >> 15 & 1 ? -value : value);
}

inline Bits encode(Format format, float value) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  if (std::isnan(value)) return 0x7FFF;
  const Bits sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(value));
  const Bits infinity = ((Bits{1} << format.exponent) - 1) << format.fraction;
  if (std::isinf(size)) return sign | infinity;
  if (size == 0) return sign;
  int exponent = std::ilogb(size);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // nearbyint rounds to nearest even in the default mode.
  const auto steps = static_cast<Bits>(std::nearbyint(std::ldexp(size, format.fraction - exponent)));
  const Bits bits = (static_cast<Bits>(exponent + bias - 1) << format.fraction) + steps;
  return sign | (bits > infinity ? infinity : bits);
}

template <class To, class From>
To cast(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// The sum of one element over ranks, in rank order.
inline Bits sum(uint32_t dtype, const std::vector<Bits>& ranks) {
  using namespace symmetra::kernels;
  if (dtype == kI32 || dtype == kI64) {
    Bits total = 0;
    for (Bits bits : ranks) total += bits;
    return dtype == kI32 ? static_cast<uint32_t>(total) : total;
  }
  if (dtype == kF64) {
    double total = cast<double>(ranks[0]);
    for (size_t r = 1; r < ranks.size(); ++r) total += cast<double>(ranks[r]);
    return std::isnan(total) ? 0x7FF8000000000000 : cast<Bits>(total);
  }
  const auto value = [&](Bits bits) {
    if (dtype == kF32) return cast<float>(static_cast<uint32_t>(bits));
    return decode(dtype == kF16 ? kHalf : kBrain, bits);
  };
  float total = value(ranks[0]);
  for (size_t r = 1; r < ranks.size(); ++r) total += value(ranks[r]);
  if (dtype == kF32) return std::isnan(total) ? 0x7FFFFFFF : cast<uint32_t>(total);
  return encode(dtype == kF16 ? kHalf : kBrain, total);
}

}  // namespace reference
