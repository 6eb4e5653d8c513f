// Quantised rows by their definition, without a look at the kernels: a code is the nearest of all values of its format, in
// double precision, and places of scales are the formulas of the documentation.
#pragma once
#include <cmath>

#include "tests/kernels/group.hpp"

namespace trial {

/// The value of a code without a sign.
inline double decoded(int fraction_bits, int bias, uint32_t code) {
  const int exponent = static_cast<int>(code >> fraction_bits);
  const double fraction = std::ldexp(code & ((1u << fraction_bits) - 1), -fraction_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

/// The values of a format that have no sign, by code.
inline std::vector<double> values_of(uint32_t to) {
  std::vector<double> values;
  for (uint32_t code = 0; code <= 127; ++code) {
    if (to == kNarrowE4M3 && code <= 0x7E) values.push_back(decoded(3, 7, code));
    if (to == kNarrowE5M2 && code <= 0x7B) values.push_back(decoded(2, 15, code));
    if (to == kNarrowE2M1 && code <= 7) values.push_back(decoded(1, 1, code));
    if (to == kNarrowI8) values.push_back(code);
  }
  return values;
}

/// The code of the nearest value; of two as near, the even code.
inline uint8_t nearest(uint32_t to, float value) {
  if (to == kNarrowI8) {
    if (std::isnan(value)) return 0;
    return static_cast<uint8_t>(static_cast<int>(std::fmin(std::fmax(std::nearbyint(static_cast<double>(value)), -128), 127)));
  }
  const std::vector<double> values = values_of(to);
  if (std::isnan(value)) return to == kNarrowE2M1 ? 7 : 0x7F;
  const double size = std::fabs(static_cast<double>(value));
  uint32_t best = static_cast<uint32_t>(values.size()) - 1;
  for (uint32_t code = 0; code < values.size() && !std::isinf(size); ++code) {
    const double off = std::fabs(size - values[code]), least = std::fabs(size - values[best]);
    if (off < least || (off == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? to == kNarrowE2M1 ? 8 : 0x80 : 0));
}

/// The values and scales of one call on every rank, between guards, and the expected output.
class Codes {
 public:
  /// `how`: without addresses. `known`: the static scale, or the global one.
  Codes(const QuantisedRows& how, uint32_t width, float known, uint32_t world, std::mt19937_64& random)
      : how_(how), width_(width), known_(known), groups_(how.elems == 0 ? 1 : (width + how.elems - 1) / how.elems) {
    const uint64_t values = how.all_rows * (how.to == kNarrowE2M1 ? width / 2 : width);
    for (uint32_t rank = 0; rank < world; ++rank) {
      values_.emplace_back(bytes(values), static_cast<uint32_t>(random() % 9));
      scales_.emplace_back(bytes(scale_bytes()), static_cast<uint32_t>(random() % 2 * 4));
    }
    right_values_.assign(values, kUntouched);
    right_scales_.assign(scale_bytes(), kUntouched);
  }

  QuantisedRows args(uint32_t rank) const {
    QuantisedRows args = how_;
    args.values = values_[rank].data();
    if (how_.scaling != kScalingStatic) args.scales = scales_[rank].data();
    if (how_.scaling == kScalingStatic || how_.scaling == kScalingNvfp4) args.known_scale = &known_;
    return args;
  }

  /// Adds row `number` of the launch, of width elements, to the expected output.
  void expect(uint64_t number, const std::vector<float>& y) {
    const uint64_t row = how_.first_row + number;
    const uint32_t elems = how_.elems == 0 ? width_ : how_.elems;
    for (uint32_t group = 0; group < groups_; ++group) {
      const uint32_t end = std::min(width_, (group + 1) * elems);
      float largest = 0;
      for (uint32_t i = group * elems; i < end; ++i)
        largest = std::isnan(largest) || std::fabs(y[i]) <= largest ? largest : std::fabs(y[i]);
      const float inverse = expect_scale(row, group, largest);
      for (uint32_t i = group * elems; i < end; ++i) {
        const uint8_t code = nearest(how_.to, y[i] * inverse);
        const uint64_t element = row * width_ + i;
        if (how_.to != kNarrowE2M1) {
          right_values_[element] = code;
        } else {
          uint8_t& pair = right_values_[element / 2];
          pair = static_cast<uint8_t>(i % 2 == 0 ? code : pair | code << 4);
        }
      }
    }
    if (how_.layout == kScalesPackedColumns) expect_padding(row);
  }

  /// Bytes that are wrong on a rank.
  uint64_t wrong(uint32_t rank) const {
    uint64_t wrong = !values_[rank].guards_hold() + !scales_[rank].guards_hold();
    for (uint64_t i = 0; i < right_values_.size(); ++i) wrong += values_[rank].get(i) != right_values_[i];
    for (uint64_t i = 0; i < right_scales_.size(); ++i) wrong += scales_[rank].get(i) != right_scales_[i];
    return wrong;
  }

 private:
  static constexpr uint8_t kUntouched = 0x5A;  // as buffers are made

  static Case bytes(uint64_t count) { return {count, kU8, 1, 1, 0, 0, 0, false, false}; }
  bool single() const { return how_.scaling == kScalingPerToken || how_.scaling == kScalingPerGroup; }
  uint64_t words() const { return (groups_ + 3) / 4; }
  uint64_t pitch() const { return (how_.all_rows + 3) / 4 * 4; }
  uint64_t scale_bytes() const {
    if (how_.scaling == kScalingStatic) return 0;
    if (how_.layout == kScalesPackedColumns) return 4 * ((words() - 1) * pitch() + how_.all_rows);
    if (how_.layout == kScalesSwizzled128x4) return (how_.all_rows + 127) / 128 * words() * 512;
    return how_.all_rows * groups_ * (single() ? 4 : 1);
  }
  uint64_t place(uint64_t row, uint32_t group) const {
    switch (how_.layout) {
      case kScalesColumns:
        return group * how_.all_rows + row;
      case kScalesPackedColumns:
        return (group / 4 * pitch() + row) * 4 + group % 4;
      case kScalesSwizzled128x4:
        return (row / 128 * words() + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4;
      default:
        return row * groups_ + group;
    }
  }

  /// Records the scale; returns the factor of the values.
  float expect_scale(uint64_t row, uint32_t group, float largest) {
    const auto most = static_cast<float>(values_of(how_.to).back());
    if (how_.scaling == kScalingStatic) return 1.0f / known_;
    uint8_t& byte = right_scales_[place(row, group) * (single() ? 4 : 1)];
    if (how_.scaling == kScalingMx) {
      if (!std::isfinite(largest)) return byte = 255, std::nanf("");
      int exponent = -127;
      while (largest > std::ldexp(static_cast<double>(most), exponent)) ++exponent;
      byte = static_cast<uint8_t>(exponent + 127);
      return std::ldexp(1.0f, -exponent);
    }
    if (how_.scaling == kScalingNvfp4) {
      byte = nearest(kNarrowE4M3, known_ * (largest * (1.0f / 6.0f)));
      const auto held = byte == 0x7F ? std::nanf("") : static_cast<float>(decoded(3, 7, byte));
      return held == 0 ? 0 : known_ / held;
    }
    const float scale = largest == 0 ? 1 : std::fmax(largest / most, 0x1p-126f);
    const uint32_t bits = std::isnan(largest) ? 0x7FFFFFFF : reference::cast<uint32_t>(scale);
    std::memcpy(&byte, &bits, 4);
    return 1.0f / reference::cast<float>(bits);
  }

  /// Bytes of words that no group has are zero: after the groups of a row, and after the last row of a column.
  void expect_padding(uint64_t row) {
    for (uint32_t behind = groups_; behind < 4 * words(); ++behind) right_scales_[place(row, behind)] = 0;
    if (row + 1 != how_.all_rows) return;
    for (uint64_t other = row + 1; other < pitch(); ++other) {
      for (uint32_t group = 0; group < 4 * (words() - 1); ++group) right_scales_[place(other, group)] = 0;
    }
  }

  QuantisedRows how_;
  uint32_t width_;
  float known_;
  uint32_t groups_;
  std::vector<Buffer> values_, scales_;
  std::vector<uint8_t> right_values_, right_scales_;
};

/// Any format, of rows among others; `width` becomes one that it can have.
inline QuantisedRows any_format(std::mt19937_64& random, uint32_t rows, uint32_t& width) {
  const uint32_t lengths[] = {16, 32, 48, 128, 208, 9600};
  QuantisedRows how{};
  how.scaling = random() % kScalings;
  do {
    how.to = random() % kNarrows;
    how.layout = random() % kScaleLayouts;
  } while (!has_format(how.scaling, how.to) || !has_layout(how.scaling, how.layout));
  if (how.scaling == kScalingPerGroup) how.elems = lengths[random() % 6];
  if (how.scaling == kScalingMx) how.elems = lengths[random() % 5];
  if (how.scaling == kScalingNvfp4) how.elems = 16;
  if (how.scaling >= kScalingMx) width = (width + how.elems - 1) / how.elems * how.elems;
  how.first_row = random() % 2 * (random() % 140);
  how.all_rows = how.first_row + rows + random() % 3;
  return how;
}

}  // namespace trial
