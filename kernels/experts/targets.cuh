// The places of the packets of a received row.
#pragma once
#include "kernels/experts/rows.cuh"

namespace symmetra::kernels {

/// The place of sixteen bytes of a row, relative to the place of the row.
struct RowTarget {
  uint8_t* base;    ///< address in place 0; null: not requested
  uint32_t stride;  ///< bytes from one place to the next
  bool whole;       ///< requested, and each packet is sixteen bytes at a multiple of sixteen
};

/// The targets of the packets of a row: first the packets of the row itself, then those of its scales.
class RowTargets {
 public:
  SYMMETRA_DEVICE RowTargets(const RowArgs& args, const ExpertOutputs& into)
      : args_(args), into_(into), scales_at_(static_cast<uint32_t>(args.scales_offset / 16)) {
    const uint32_t scale_bytes = kernels::scale_bytes(args);
    const auto whole = [](const void* base, uint32_t stride) {
      return base != nullptr && (reinterpret_cast<uintptr_t>(base) | stride) % 16 == 0;
    };
    auto* const output = static_cast<uint8_t*>(into.rows);
    auto* const scales = static_cast<uint8_t*>(into.scales);
    payload_ = {output, args.payload_bytes, whole(output, args.payload_bytes)};
    scales_ = {scales, scale_bytes, into.columns == 0 && whole(scales, scale_bytes)};
  }

  /// Whether packet `i` of a row has scales.
  SYMMETRA_DEVICE bool is_scales(uint32_t i) const { return i >= scales_at_; }
  /// The number of packet `i` among those of the row, or of its scales.
  SYMMETRA_DEVICE uint32_t number(uint32_t i) const { return is_scales(i) ? i - scales_at_ : i; }
  SYMMETRA_DEVICE RowTarget of(uint32_t i) const {
    const bool scales = is_scales(i);
    return {scales ? scales_.base : payload_.base, scales ? scales_.stride : payload_.stride, scales ? scales_.whole : payload_.whole};
  }

  /// Writes packet `i` of a row to a place, for targets that are not whole: packets that are unaligned, partial or not
  /// requested.
  SYMMETRA_DEVICE void put(uint32_t i, uint32_t place, uint32_t expert, const Words<4>& data) const {
    if (is_scales(i)) {
      RowOutputs(args_, into_).scale_packet(data, number(i), place, expert);
    } else {
      Bytes(into_.rows, uint64_t{place} * args_.payload_bytes, args_.payload_bytes).store(i, data);
    }
  }

 private:
  const RowArgs& args_;
  const ExpertOutputs& into_;
  uint32_t scales_at_;  ///< the packet of a row that contains the first scale
  RowTarget payload_{};
  RowTarget scales_{};
};

}  // namespace symmetra::kernels
