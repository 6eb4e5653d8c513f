// The narrow formats against an oracle that knows only their fields: the nearest of all decoded codes in double
// precision, ties to the even code. All values of f16 and bf16, all boundaries, and random floats. Prints one line;
// exits 1 when anything is wrong.
#include "kernels/numeric/narrow.cuh"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace symmetra::kernels::narrow;
using symmetra::platform::Pair;

uint64_t checks = 0, failures = 0;

void check(bool holds, const char* what, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
  ++checks;
  if (holds) return;
  if (++failures < 40) std::printf("FAILED: %s (%08x, %x, %x)\n", what, a, b, c);
}

/// The known properties of a format: its finite values without a sign, by code.
struct Oracle {
  const char* name;
  uint32_t sign;  ///< the bit of the sign
  uint32_t nan;   ///< the code of a NaN
  std::vector<double> values;

  /// Codes up to `largest` are finite.
  Oracle(const char* name, int exponent_bits, int fraction_bits, uint32_t largest, uint32_t nan)
      : name(name), sign(1u << (exponent_bits + fraction_bits)), nan(nan) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (uint32_t code = 0; code <= largest; ++code) {
      const int exponent = static_cast<int>(code) >> fraction_bits;
      const double fraction = std::ldexp(code & ((1u << fraction_bits) - 1), -fraction_bits);
      values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
    }
  }

  uint32_t nearest(float value) const {
    if (std::isnan(value)) return nan;
    const double size = std::fabs(static_cast<double>(value));
    const auto above = std::lower_bound(values.begin(), values.end(), size);
    auto code = static_cast<uint32_t>(above - values.begin());
    if (above == values.end()) {
      code = static_cast<uint32_t>(values.size() - 1);
    } else if (code > 0) {
      const double up = values[code] - size, down = size - values[code - 1];
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return std::signbit(value) ? sign | code : code;
  }
};

const Oracle kE4M3("e4m3", 4, 3, 0x7E, 0x7F), kE5M2("e5m2", 5, 2, 0x7B, 0x7F), kE2M1("e2m1", 2, 1, 7, 7);

uint32_t nearest_int8(float value) {
  const double held = std::isnan(value) ? 0 : std::clamp<double>(value, -128, 127);
  return static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(held))) & 0xFF;
}

/// Every encoder, of a value in both places of a pair.
void encodes(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto pair_of = [&]<class Format>(Format, uint32_t expected, const char* name) {
    const uint32_t one = Format::encode(value), first = Format::pack({value, 0.0f}), second = Format::pack({0.0f, value});
    check(one == expected && first == expected && second == expected << Format::kBits, name, bits, one, expected);
  };
  pair_of(E4M3{}, kE4M3.nearest(value), "e4m3");
  pair_of(E5M2{}, kE5M2.nearest(value), "e5m2");
  pair_of(E2M1{}, kE2M1.nearest(value), "e2m1");
  pair_of(Int8{}, nearest_int8(value), "int8");
}

template <class Format>
void covers(const Oracle& oracle, float most) {
  const uint32_t byte = E8M0::covering<Format>(most);
  if (!std::isfinite(most)) return check(byte == 255, "e8m0 of no number", std::bit_cast<uint32_t>(most), byte);
  const double largest = oracle.values.back();
  // Begins below the least exponent, by the exponents of both numbers.
  int least = most == 0 ? -127 : std::max(-127, std::ilogb(most) - std::ilogb(largest) - 1);
  while (most > std::ldexp(largest, least)) ++least;
  check(byte == static_cast<uint32_t>(least + 127), oracle.name, std::bit_cast<uint32_t>(most), byte);
}

double bf16(uint32_t code) { return std::bit_cast<float>(code << 16); }

/// Every encoder of scales, of a value without a sign.
void scales(float value) {
  covers<E4M3>(kE4M3, value);
  covers<E5M2>(kE5M2, value);
  covers<E2M1>(kE2M1, value);
  const uint32_t up = bf16_up(value);
  const bool least = std::isnan(value) ? up == 0x7FFF : bf16(up) >= value && (up == 0 ? value == 0 : bf16(up - 1) < value);
  check(least, "bf16 rounded up", std::bit_cast<uint32_t>(value), up);
}

void any(uint32_t bits) {
  encodes(std::bit_cast<float>(bits));
  scales(std::bit_cast<float>(bits & 0x7FFFFFFF));
}

/// A value and its neighbours, with both signs.
void around(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  for (const uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t step = 0; step < 5; ++step) any(sign | (bits < 2 ? step : bits - 2 + step));
  }
}

void boundaries() {
  for (const Oracle* oracle : {&kE4M3, &kE5M2, &kE2M1}) {
    for (size_t i = 0; i < oracle->values.size(); ++i) {
      around(oracle->values[i]);
      if (i > 0) around((oracle->values[i - 1] + oracle->values[i]) / 2);
    }
    // Where another value would begin, and groups of which it would be the scale.
    const size_t last = oracle->values.size() - 1;
    around(2 * oracle->values[last] - oracle->values[last - 1]);
    around(1.5 * oracle->values[last] - 0.5 * oracle->values[last - 1]);
    for (int exponent = -160; exponent < 128; ++exponent) around(std::min(std::ldexp(oracle->values[last], exponent), 3.4e38));
  }
  for (int half = 0; half <= 2 * 130; ++half) around(0.5 * half);
  for (int exponent = -149; exponent < 128; ++exponent) around(std::ldexp(1.0, exponent));
  for (const uint32_t bits : {0x7F7FFFFFu, 0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) any(bits), any(0x80000000 | bits);
}

/// All values of bf16, then of f16.
void halves() {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    any(code << 16);
    const Pair pair = symmetra::platform::unpack_f16(code);
    any(std::bit_cast<uint32_t>(pair.low));
  }
}

/// Every code in every place of a word: the value, and that it is encoded as what it was.
template <class Format>
void decodes(const char* name, double (*value)(uint32_t)) {
  constexpr uint32_t kPlaces = kPerWord<Format>, kCodes = 1u << Format::kBits;
  for (uint32_t code = 0; code < kCodes; ++code) {
    const double expected = value(code);
    for (uint32_t place = 0; place < kPlaces; ++place) {
      float values[kPlaces];
      const uint32_t others = 0x12345678u & ~((kCodes - 1) << place * Format::kBits);
      unpack_word<Format>(others | code << place * Format::kBits, values);
      const float got = values[place];
      const bool right = std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected);
      check(right, name, code, place, std::bit_cast<uint32_t>(got));
      const bool finite = std::isfinite(expected);
      if (finite) check(pack_word<Format>(values) == (others | code << place * Format::kBits), name, code, place);
    }
  }
}

double value_of(const Oracle& oracle, uint32_t code) {
  const uint32_t size = code & (oracle.sign - 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double infinite = &oracle == &kE5M2 && size == 0x7C ? kInfinity : std::nan("");
  const double value = size < oracle.values.size() ? oracle.values[size] : infinite;
  return code & oracle.sign ? -value : value;
}

void scale_codes() {
  for (uint32_t byte = 0; byte < 255; ++byte) {
    const float scale = E8M0::decode(byte);
    check(scale == std::ldexp(1.0, static_cast<int>(byte) - 127), "e8m0", byte);
    check(E8M0::inverse(byte) == 1 / static_cast<double>(scale), "inverse of e8m0", byte);
  }
  check(std::isnan(E8M0::decode(255)) && std::isnan(E8M0::inverse(255)), "e8m0 NaN", 255);
}

void whole_numbers() {
  constexpr int32_t kBounds[] = {7, 31, 127, 1 << 22};
  for (const int32_t bound : kBounds) {
    for (int32_t half = -300; half <= 300; ++half) {
      const float value = 0.5f * static_cast<float>(half);
      const double expected = std::clamp<double>(std::nearbyint(value), -bound, bound);
      check(whole(value, -bound, bound) == expected, "whole numbers", std::bit_cast<uint32_t>(value), bound);
    }
    check(whole(1e30f, -bound, bound) == bound && whole(-1e30f, -bound, bound) == -bound, "whole numbers saturate", bound);
    check(whole(std::nanf(""), -bound, bound) == 0, "a whole number of NaN", bound);
  }
}

}  // namespace

int main() {
  decodes<E4M3>("decoded e4m3", [](uint32_t code) { return value_of(kE4M3, code); });
  decodes<E5M2>("decoded e5m2", [](uint32_t code) { return value_of(kE5M2, code); });
  decodes<E2M1>("decoded e2m1", [](uint32_t code) { return value_of(kE2M1, code); });
  decodes<Int8>("decoded int8", [](uint32_t code) { return static_cast<double>(static_cast<int8_t>(code)); });
  scale_codes();
  whole_numbers();
  boundaries();
  halves();
  std::mt19937 random(1);
  for (uint32_t i = 0; i < 1u << 24; ++i) any(random());
  std::printf("narrow formats: %llu checks, %llu failed\n", static_cast<unsigned long long>(checks),
              static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}
