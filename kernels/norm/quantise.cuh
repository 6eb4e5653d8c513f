// Rows of y in a narrow format, with their scales. A quantised value is the value nearest to the element times the
// inverse of its scale, in single precision. Elements are processed by packet: a packet of y gives as many quantised
// values as it has elements.
#pragma once
#include "kernels/norm/rows.cuh"

namespace symmetra::kernels {

/// `value` / `by`, where `by` is a power of two if kPower: a division takes a hundred clocks.
template <bool kPower>
SYMMETRA_DEVICE uint32_t quotient(uint32_t value, uint32_t by) {
  return kPower ? value >> platform::log2_of(by) : value / by;
}

/// The places of the scales of a row, for each layout.
class ScalePlaces {
 public:
  /// `groups`: groups in a row.
  SYMMETRA_DEVICE ScalePlaces(const QuantisedRows& how, uint64_t row, uint32_t groups) : how_(how), row_(row), groups_(groups) {}

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

  /// Writes the byte of a group, and the padding zeros after the last group of a row and after the last row of a
  /// column.
  SYMMETRA_DEVICE void store_packed(uint32_t group, uint32_t byte) const {
    const uint64_t pitch = (how_.all_rows + 3) / 4 * 4, column = group / 4 * pitch;
    put((column + row_) * 4 + group % 4, byte);
    if (group + 1 == groups_) {
      SYMMETRA_ROLLED
      for (uint32_t behind = groups_; behind % 4 != 0; ++behind) put((column + row_) * 4 + behind % 4, 0);
    }
    const bool last_column = group / 4 == (groups_ - 1) / 4;
    if (row_ + 1 != how_.all_rows || last_column) return;  // the last column ends with the last row
    SYMMETRA_ROLLED
    for (uint64_t behind = how_.all_rows; behind < pitch; ++behind) put((column + behind) * 4 + group % 4, 0);
  }

  const QuantisedRows& how_;
  uint64_t row_;
  uint32_t groups_;
};

/// A format that the launch selects at run time.
struct AnyFormat {
  static constexpr bool kKnown = false;
  SYMMETRA_DEVICE static uint32_t to(const QuantisedRows& how) { return how.to; }
  SYMMETRA_DEVICE static uint32_t scaling(const QuantisedRows& how) { return how.scaling; }
};

/// A format that the kernel is compiled for. Without branches and the code of other formats, rows of a few packets for
/// each thread are written a tenth of a microsecond faster.
template <uint32_t kTo, uint32_t kScaling>
struct KnownFormat {
  static constexpr bool kKnown = true;
  SYMMETRA_DEVICE static uint32_t to(const QuantisedRows&) { return kTo; }
  SYMMETRA_DEVICE static uint32_t scaling(const QuantisedRows&) { return kScaling; }
};

/// The quantised values and scales of one row. kWhole: the quantised values of a packet are aligned, and a group has a
/// power of two of packets.
template <class Element, bool kWhole, class Format>
class Quantiser {
 public:
  static constexpr uint32_t kCount = kValues<Element, 4>;
  using Values = float[kCount];

  /// `row`: the row's number in the launch.
  SYMMETRA_DEVICE Quantiser(const NormArgs& args, uint64_t row)
      : args_(args),
        how_(args.quantised),
        row_(args.quantised.first_row + row),
        known_(how_.known_scale == nullptr ? 1.0f : platform::load<float>(how_.known_scale)) {}

  /// Writes the quantised values of a packet of y, and the scale if the packet is the first one with this scale.
  /// `largest`: the largest absolute value in y among the packets with this scale; ignored for a static scale.
  SYMMETRA_DEVICE void store(uint32_t packet, const Values& y, float largest) const {
    const Scale scale = scale_of(largest);
    switch (Format::to(how_)) {
      case kNarrowE4M3:
        encode<narrow::E4M3>(packet, y, scale.inverse);
        break;
      case kNarrowE5M2:
        encode<narrow::E5M2>(packet, y, scale.inverse);
        break;
      case kNarrowE2M1:
        encode<narrow::E2M1>(packet, y, scale.inverse);
        break;
      default:
        encode<narrow::Int8>(packet, y, scale.inverse);
    }
    store_scale(packet, scale.bits);
  }

 private:
  struct Scale {
    float inverse;  ///< values are multiplied by this
    uint32_t bits;  ///< the stored scale: a byte, or the bits of an f32
  };

  SYMMETRA_DEVICE Scale scale_of(float largest) const {
    switch (Format::scaling(how_)) {
      case kScalingStatic:
        return {platform::reciprocal(known_), 0};
      case kScalingMx: {
        const uint32_t byte = covering(largest);
        return {narrow::E8M0::inverse(byte), byte};
      }
      case kScalingNvfp4: {
        const uint32_t byte = narrow::E4M3::pack({platform::multiply(known_, platform::multiply(largest, 1.0f / 6)), 0.0f}) & 0xFF;
        const float held = narrow::E4M3::unpack(byte).low;
        return {held == 0 ? 0.0f : platform::divide(known_, held), byte};
      }
      default: {
        const float single = of_single(largest);
        return {platform::reciprocal(single), platform::bits_of(single)};
      }
    }
  }

  /// Writes the scale of a packet's group, if the packet is the first of the group.
  SYMMETRA_DEVICE void store_scale(uint32_t packet, uint32_t bits) const {
    const uint32_t scaling = Format::scaling(how_);
    if (scaling == kScalingStatic) return;
    const uint32_t packets = how_.elems / kCount, group = packets == 0 ? 0 : quotient<kWhole>(packet, packets);
    if (packet != group * packets) return;
    const ScalePlaces places(how_, row_, packets == 0 ? 1 : quotient<kWhole>(args_.width + how_.elems - 1, how_.elems));
    if (scaling == kScalingMx || scaling == kScalingNvfp4) return places.store_byte(group, bits);
    places.store(group, platform::f32_of(bits));
  }

  SYMMETRA_DEVICE uint32_t covering(float largest) const {
    if (Format::to(how_) == kNarrowE4M3) return narrow::E8M0::covering<narrow::E4M3>(largest);
    if (Format::to(how_) == kNarrowE5M2) return narrow::E8M0::covering<narrow::E5M2>(largest);
    return narrow::E8M0::covering<narrow::E2M1>(largest);
  }

  /// A scale in f32: at least the smallest normal number, so that its inverse is finite.
  SYMMETRA_DEVICE float of_single(float largest) const {
    const float exact = platform::divide(largest, most()), least = platform::f32_of(0x00800000);
    if (largest != largest) return platform::f32_of(F32::kQuietNan);
    return largest == 0 ? 1.0f : exact < least ? least : exact;
  }

  /// The largest value of a format whose scales are f32.
  SYMMETRA_DEVICE float most() const {
    if (Format::to(how_) == kNarrowE4M3) return narrow::E4M3::kMost;
    if (Format::to(how_) == kNarrowE5M2) return narrow::E5M2::kMost;
    return narrow::Int8::kMost;
  }

  template <class Code>
  SYMMETRA_DEVICE void encode(uint32_t packet, const Values& y, float inverse) const {
    constexpr uint32_t kBits = kCount * Code::kBits, kBytes = kBits / 8;
    Words<2> codes{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; i += 2) {
      const uint32_t pair = Code::pack({platform::multiply(y[i], inverse), platform::multiply(y[i + 1], inverse)});
      codes.word[i * Code::kBits / 32] |= pair << i * Code::kBits % 32;
    }
    const uintptr_t at = reinterpret_cast<uintptr_t>(how_.values) + row_ * args_.width * Code::kBits / 8 + uint64_t{packet} * kBytes;
    const uint32_t rest = args_.width - packet * kCount;
    if (kWhole || (at % kBytes == 0 && rest >= kCount)) {
      void* const whole = reinterpret_cast<void*>(at);
      if constexpr (kBytes == 8) return platform::store(whole, codes);
      if constexpr (kBytes == 4) return platform::store(whole, codes.word[0]);
      return platform::store(whole, static_cast<uint16_t>(codes.word[0]));
    }
    // Rows of 4-bit values are whole packets.
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
  float known_;  ///< the static scale or the global scale, loaded before waiting for a row
};

}  // namespace symmetra::kernels
