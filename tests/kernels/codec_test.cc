// The codecs of quantised all-reduces: every quantised value goes both ways, no unit has a word that means "not
// arrived", and units have the documented layout.
#include "kernels/all_reduce/codec.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
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

/// An encoded unit: the words of its lanes.
struct Unit {
  uint32_t codec;
  std::vector<uint32_t> codes[kUnitLanes];
  uint32_t scales[kUnitLanes];

  /// A quantised value by the documented layout: bit by bit, octets of the lane in the first half before those in the
  /// second.
  uint32_t code(uint32_t element) const {
    const uint32_t octet = element / kOctetElems, first = octet / kUnitLanes * kOctetElems + element % kOctetElems;
    uint32_t code = 0;
    for (uint32_t bit = 0; bit < codec_bits(codec); ++bit) {
      const uint32_t at = first * codec_bits(codec) + bit;
      code |= (codes[octet % kUnitLanes][at / 32] >> at % 32 & 1) << bit;
    }
    return code;
  }
  /// The scale of a group, which all its lanes have.
  uint32_t scale(uint32_t group) const {
    const uint32_t lane = group % (kGroups / 2) * kGroupLanes, shift = group < kGroups / 2 ? 0 : 16;
    for (uint32_t i = 1; i < kGroupLanes; ++i) check(scales[lane + i] == scales[lane], "lanes of a group have one scale", codec, group);
    return scales[lane] >> shift & 0xFFFF;
  }
  void check_words() const {
    bool missing = false;
    for (uint32_t lane = 0; lane < kUnitLanes; ++lane) {
      check(codes[lane].size() * 32 == 2 * kOctetElems * codec_bits(codec), "the words of a lane", codec, lane);
      missing |= scales[lane] == kMissing;
      for (const uint32_t word : codes[lane]) missing |= word == kMissing;
    }
    check(!missing, "no word means absence", codec);
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

/// The values of a lane of a unit.
void values_of(const float* unit, uint32_t lane, LaneValues& values) {
  for (uint32_t half = 0; half < 2; ++half) std::memcpy(values[half], unit + (half * kUnitLanes + lane) * kOctetElems, sizeof(Octet));
}

/// The encoded unit of 512 values.
Unit encoded(uint32_t codec, const float* values) {
  Unit unit{};
  unit.codec = codec;
  for (uint32_t lane = 0; lane < kUnitLanes; ++lane) {
    uint32_t most[2] = {};
    LaneValues octets;
    for (uint32_t i = 0; i < kGroupLanes; ++i) {
      values_of(values, lane / kGroupLanes * kGroupLanes + i, octets);
      for (uint32_t half = 0; half < 2; ++half) most[half] = std::max(most[half], symmetra::kernels::most_of(octets[half]));
    }
    values_of(values, lane, octets);
    with_code(codec, [&](auto code) {
      const auto words = encode<decltype(code)>(octets, most);
      unit.codes[lane].assign(std::begin(words.codes), std::end(words.codes));
      unit.scales[lane] = words.scales;
    });
  }
  return unit;
}

/// The decoded values of a unit.
std::vector<float> decoded_of(const Unit& unit) {
  std::vector<float> values(kUnitElems);
  for (uint32_t lane = 0; lane < kUnitLanes; ++lane) {
    LaneValues octets = {};
    with_code(unit.codec, [&](auto code) {
      EncodedLane<decltype(code)> words;
      std::copy(unit.codes[lane].begin(), unit.codes[lane].end(), words.codes);
      words.scales = unit.scales[lane];
      add(words, octets);
    });
    for (uint32_t half = 0; half < 2; ++half) std::memcpy(&values[(half * kUnitLanes + lane) * kOctetElems], octets[half], sizeof(Octet));
  }
  return values;
}

/// Encodes and decodes a unit, and compares the codes and scales with the definition.
void check_unit(uint32_t number, const std::vector<float>& values) {
  const Unit unit = encoded(number, values.data());
  const std::vector<float> all = decoded_of(unit);
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
    const float* decoded = all.data() + group * kGroupElems;
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
      // No other code is nearer, except for the rounding of the reciprocal.
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
      const Unit unit = encoded(number, values.data());
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
