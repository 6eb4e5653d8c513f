// Rows of y in a narrow format, with their scales. A code is the nearest to the product of a value and the inverse of its
// scale, in single precision. Values move by packet: as many codes as a packet of y has values.
#pragma once
#include "kernels/norm/rows.cuh"

namespace symmetra::kernels {

/// Where the scales of a row are, by their layout.
class ScalePlaces {
 public:
  SYMMETRA_DEVICE ScalePlaces(const QuantisedRows& how, uint64_t row, uint32_t width)
      : how_(how), row_(row), groups_(how.elems == 0 ? 1 : (width + how.elems - 1) / how.elems) {}

  SYMMETRA_DEVICE void store(uint32_t group, float scale) const {
    const uint64_t place = how_.layout == kScalesColumns ? group * how_.all_rows + row_ : row_ * groups_ + group;
    platform::store(static_cast<float*>(how_.scales) + place, scale);
  }
  SYMMETRA_DEVICE void store_byte(uint32_t group, uint32_t byte) const {
    if (how_.layout == kScalesPackedColumns) return store_packed(group, byte);
    uint64_t place = row_ * groups_ + group;
    if (how_.layout == kScalesSwizzled128x4) {
      const uint64_t block = row_ / 128 * ((groups_ + 3) / 4) + group / 4;
      place = block * 512 + row_ % 32 * 16 + row_ % 128 / 32 * 4 + group % 4;
    }
    put(place, byte);
  }

 private:
  SYMMETRA_DEVICE void put(uint64_t place, uint32_t byte) const {
    platform::store(static_cast<uint8_t*>(how_.scales) + place, static_cast<uint8_t>(byte));
  }

  /// Writes the byte of a group, and zeros behind the last group of a row and behind the last row of a column.
  SYMMETRA_DEVICE void store_packed(uint32_t group, uint32_t byte) const {
    const uint64_t pitch = (how_.all_rows + 3) / 4 * 4, column = group / 4 * pitch;
    put((column + row_) * 4 + group % 4, byte);
    if (group + 1 == groups_) {
      for (uint32_t behind = groups_; behind % 4 != 0; ++behind) put((column + row_) * 4 + behind % 4, 0);
    }
    const bool last_column = group / 4 == (groups_ - 1) / 4;
    if (row_ + 1 != how_.all_rows || last_column) return;  // the last column ends with the last row
    for (uint64_t behind = how_.all_rows; behind < pitch; ++behind) put((column + behind) * 4 + group % 4, 0);
  }

  const QuantisedRows& how_;
  uint64_t row_;
  uint32_t groups_;
};

/// The codes and scales of one row.
template <class Element>
class Quantiser {
 public:
  static constexpr uint32_t kCount = kValues<Element, 4>;
  using Values = float[kCount];

  /// `row`: its number in the launch.
  SYMMETRA_DEVICE Quantiser(const NormArgs& args, uint64_t row) : args_(args), how_(args.quantised), row_(args.quantised.first_row + row) {}

  /// Writes the codes of a packet of y, and the scale if the packet is the first that has the scale. `largest`: the
  /// largest size in y of what has this scale; of a static scale nothing.
  SYMMETRA_DEVICE void store(uint32_t packet, const Values& y, float largest) const {
    const uint32_t group_packets = how_.elems / kCount;
    const uint32_t group = group_packets == 0 ? 0 : packet / group_packets;
    const float inverse = scale(group, packet == group * group_packets, largest);
    switch (how_.to) {
      case kNarrowE4M3:
        return encode<narrow::E4M3>(packet, y, inverse);
      case kNarrowE5M2:
        return encode<narrow::E5M2>(packet, y, inverse);
      case kNarrowE2M1:
        return encode<narrow::E2M1>(packet, y, inverse);
      default:
        return encode<narrow::Int8>(packet, y, inverse);
    }
  }

 private:
  /// What values are multiplied by. Writes the scale of a group if asked to.
  SYMMETRA_DEVICE float scale(uint32_t group, bool writes, float largest) const {
    switch (how_.scaling) {
      case kScalingStatic:
        return platform::divide(1.0f, platform::load<float>(how_.known_scale));
      case kScalingMx: {
        const uint32_t byte = covering(largest);
        if (writes) places().store_byte(group, byte);
        return narrow::E8M0::inverse(byte);
      }
      case kScalingNvfp4: {
        const float all = platform::load<float>(how_.known_scale);
        const uint32_t byte = narrow::E4M3::encode(platform::multiply(all, platform::multiply(largest, 1.0f / 6)));
        if (writes) places().store_byte(group, byte);
        const float held = narrow::E4M3::decode(byte);
        return held == 0 ? 0.0f : platform::divide(all, held);
      }
      default: {
        const float single = of_single(largest);
        if (writes) places().store(group, single);
        return platform::divide(1.0f, single);
      }
    }
  }

  SYMMETRA_DEVICE ScalePlaces places() const { return {how_, row_, args_.width}; }

  SYMMETRA_DEVICE uint32_t covering(float largest) const {
    if (how_.to == kNarrowE4M3) return narrow::E8M0::covering<narrow::E4M3>(largest);
    if (how_.to == kNarrowE5M2) return narrow::E8M0::covering<narrow::E5M2>(largest);
    return narrow::E8M0::covering<narrow::E2M1>(largest);
  }

  /// A scale in f32: at least the least normal number, so that its inverse is finite.
  SYMMETRA_DEVICE float of_single(float largest) const {
    const float exact = platform::divide(largest, most()), least = platform::f32_of(0x00800000);
    if (largest != largest) return platform::f32_of(F32::kQuietNan);
    return largest == 0 ? 1.0f : exact < least ? least : exact;
  }

  /// The largest value of a format that has scales in f32.
  SYMMETRA_DEVICE float most() const {
    if (how_.to == kNarrowE4M3) return narrow::E4M3::kMost;
    if (how_.to == kNarrowE5M2) return narrow::E5M2::kMost;
    return narrow::Int8::kMost;
  }

  template <class Format>
  SYMMETRA_DEVICE void encode(uint32_t packet, const Values& y, float inverse) const {
    constexpr uint32_t kBits = kCount * Format::kBits, kBytes = kBits / 8;
    Words<2> codes{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; i += 2) {
      const uint32_t pair = Format::pack({platform::multiply(y[i], inverse), platform::multiply(y[i + 1], inverse)});
      codes.word[i * Format::kBits / 32] |= pair << i * Format::kBits % 32;
    }
    const uintptr_t at = reinterpret_cast<uintptr_t>(how_.values) + row_ * args_.width * Format::kBits / 8 + uint64_t{packet} * kBytes;
    const uint32_t rest = args_.width - packet * kCount;
    if (at % kBytes == 0 && rest >= kCount) {
      void* const whole = reinterpret_cast<void*>(at);
      if constexpr (kBytes == 8) return platform::store(whole, codes);
      if constexpr (kBytes == 4) return platform::store(whole, codes.word[0]);
      return platform::store(whole, static_cast<uint16_t>(codes.word[0]));
    }
    // Rows of codes of four bits are whole packets.
    const uint32_t bytes = rest >= kCount ? kBytes : rest;
    SYMMETRA_ROLLED
    for (uint32_t i = 0; i < bytes; ++i) {
      platform::store(reinterpret_cast<uint8_t*>(at) + i, static_cast<uint8_t>(codes.word[0]));
      codes.word[0] = codes.word[0] >> 8 | codes.word[1] << 24;
      codes.word[1] >>= 8;
    }
  }

  const NormArgs& args_;
  const QuantisedRows& how_;
  uint64_t row_;
};

}  // namespace symmetra::kernels
