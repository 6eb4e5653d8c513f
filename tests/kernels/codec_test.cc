// The codecs of quantised all-reduces: every code goes both ways, no unit has a word that means "not arrived", and
// units hold what the description says.
#include "kernels/all_reduce/codec.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace symmetra::kernels;
using symmetra::platform::bits_of;
using symmetra::platform::f32_of;

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint32_t a = 0, uint32_t b = 0) {
  ++checks;
  if (holds) return;
  if (++failures < 20) std::printf("FAILED: %s (%u, %u)\n", what, a, b);
}

constexpr uint32_t kMissing = 0xFFFFFFFF, kGroups = kUnitElems / kGroupElems;

/// An encoded unit, and what it holds as the layout says: codes bit by bit, then scales.
struct Unit {
  uint32_t codec;
  alignas(16) uint8_t bytes[17 * 16];

  explicit Unit(uint32_t codec) : codec(codec) { std::memset(bytes, 0xA5, sizeof(bytes)); }
  uint32_t size() const { return unit_packets(codec) * 16; }
  uint32_t code(uint32_t element) const {
    uint32_t code = 0;
    for (uint32_t bit = 0; bit < codec_bits(codec); ++bit) {
      const uint32_t at = element * codec_bits(codec) + bit;
      code |= static_cast<uint32_t>(bytes[at / 8] >> at % 8 & 1) << bit;
    }
    return code;
  }
  uint32_t scale(uint32_t group) const {
    uint16_t scale;
    std::memcpy(&scale, bytes + kUnitElems * codec_bits(codec) / 8 + 2 * group, 2);
    return scale;
  }
  void check_words() const {
    bool missing = false;
    for (uint32_t at = 0; at < size(); at += 4) {
      uint32_t word;
      std::memcpy(&word, bytes + at, 4);
      missing |= word == kMissing;
    }
    check(!missing, "no word means absence", codec);
    for (uint32_t at = size(); at < sizeof(bytes); ++at) missing |= bytes[at] != 0xA5;
    check(!missing, "nothing is written behind the unit", codec);
  }
};

/// The value of a code, from the definition of the codec.
double value_of(uint32_t codec, uint32_t code) {
  if (codec != kCodecFp8) return static_cast<double>(code) - ((1 << (codec_bits(codec) - 1)) - 1);
  const int exponent = static_cast<int>(code >> 3 & 15), fraction = static_cast<int>(code & 7);
  const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >> 7 != 0 ? -size : size;
}
double most_of(uint32_t codec) { return codec == kCodecFp8 ? 448 : (1 << (codec_bits(codec) - 1)) - 1; }

/// Encodes a group of a unit.
void encode(const Codec& codec, const float* values, Unit& unit, uint32_t group) {
  Octet octets[kGroupOctets];
  std::memcpy(octets, values, sizeof(octets));
  uint32_t most = 0;
  for (const Octet& octet : octets) most = std::max(most, symmetra::kernels::most_of(octet));
  for (uint32_t i = 0; i < kGroupOctets; ++i) codec.encode(octets[i], most, unit.bytes, group * kGroupOctets + i);
}

/// Encodes and decodes a unit, and compares the codes and scales with the definition.
void check_unit(uint32_t number, const std::vector<float>& values) {
  const Codec codec(number);
  Unit unit(number);
  for (uint32_t group = 0; group < kGroups; ++group) {
    encode(codec, values.data() + group * kGroupElems, unit, group);
  }
  unit.check_words();
  for (uint32_t group = 0; group < kGroups; ++group) {
    const float* given = values.data() + group * kGroupElems;
    float most = 0;
    bool finite = true;
    for (uint32_t i = 0; i < kGroupElems; ++i) {
      finite &= std::isfinite(given[i]);
      most = std::fmax(most, std::fabs(given[i]));
    }
    const uint32_t scale_bits = unit.scale(group);
    const double scale = f32_of(scale_bits << 16);
    finite &= std::isfinite(static_cast<float>(scale * most_of(number)));
    float decoded[kGroupElems] = {};
    for (uint32_t i = 0; i < kGroupOctets; ++i) {
      Octet octet = {};
      codec.add(unit.bytes, group * kGroupOctets + i, octet);
      std::memcpy(decoded + i * kOctetElems, octet, sizeof(octet));
    }
    if (!finite) {
      bool nans = std::isnan(scale) && scale_bits >> 15 == 0;
      for (uint32_t i = 0; i < kGroupElems; ++i) nans &= unit.code(group * kGroupElems + i) == 0 && std::isnan(decoded[i]);
      check(nans, "a group that is not finite is NaN", number, group);
      continue;
    }
    // The least bf16 of at least the quotient, and of at least 2^-126.
    const double below = f32_of((scale_bits - 1) << 16), quotient = static_cast<float>(most / static_cast<float>(most_of(number)));
    check(scale >= quotient && scale >= 0x1p-126 && (below < quotient || scale == 0x1p-126), "the scale is rounded up", number, scale_bits);
    for (uint32_t i = 0; i < kGroupElems; ++i) {
      const uint32_t code = unit.code(group * kGroupElems + i);
      const double value = value_of(number, code) * scale;
      check(decoded[i] == value && !(value == 0 && std::signbit(decoded[i])), "a code times the scale is the value", number, code);
      // No other code is nearer, but for what the reciprocal is rounded by.
      const double error = std::fabs(value - given[i]), other = 1e-6 * std::fabs(given[i]);
      bool nearest = true;
      for (uint32_t near = 0; near < 1u << codec_bits(number); ++near) {
        const bool is_code = number == kCodecFp8 ? (near & 0x7F) != 0x7F : near + 1 < 1u << codec_bits(number);
        nearest &= !is_code || std::fabs(value_of(number, near) * scale - given[i]) + other >= error;
      }
      check(nearest, "the nearest code", number, code);
    }
  }
}

/// Every code of a group whose largest value is the largest code, at every place of a unit.
void check_codes(uint32_t number) {
  const uint32_t codes = 1u << codec_bits(number);
  for (uint32_t code = 0; code < codes; ++code) {
    const bool occurs = number == kCodecFp8 ? (code & 0x7F) != 0x7F : code + 1 < codes;
    if (!occurs) continue;
    // All places but one in each group: that one holds the largest value, and the next unit has it elsewhere.
    for (uint32_t largest = 0; largest < 2; ++largest) {
      std::vector<float> values(kUnitElems, static_cast<float>(value_of(number, code)));
      for (uint32_t i = largest; i < kUnitElems; i += kGroupElems) values[i] = static_cast<float>(most_of(number));
      check_unit(number, values);
      Unit unit(number);
      encode(Codec(number), values.data(), unit, 0);
      check(unit.scale(0) == 0x3F80, "the scale of codes is one", number, code);
      bool kept = true;
      for (uint32_t i = 0; i < kGroupElems; ++i) kept &= i == largest || unit.code(i) == code;
      check(kept, "a code stays what it is", number, code);
    }
  }
}

void check_data(uint32_t number) {
  std::mt19937_64 random(number);
  std::normal_distribution<float> normal;
  constexpr float kInfinite = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  const float specials[] = {0, -0.0f, 1e-45f, -1e-40f, 0x1p-126f, 3.3e38f, -3.38e38f, kMax, kInfinite, -kInfinite, std::nanf("")};
  for (uint32_t turn = 0; turn < 400; ++turn) {
    std::vector<float> values;
    for (uint32_t i = 0; i < kUnitElems; ++i) {
      const uint64_t drawn = random();
      float value = normal(random);
      if (turn % 4 == 1) value = std::ldexp(value, static_cast<int>(i / kGroupElems * 37) - 140);
      if (turn % 4 == 2) value = f32_of(static_cast<uint32_t>(drawn));  // any bits at all, NaNs too
      if (turn % 4 == 3 && drawn % 40 == 0) value = specials[drawn / 64 % 11];
      values.push_back(value);
    }
    if (turn % 8 == 7) std::fill(values.begin(), values.begin() + kGroupElems, turn % 16 == 7 ? -0.0f : 0.0f);
    check_unit(number, values);
  }
}

}  // namespace

int main() {
  for (uint32_t number = kCodecFp8; number < kCodecs; ++number) {
    check_codes(number);
    check_data(number);
  }
  std::printf("codecs: %d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
