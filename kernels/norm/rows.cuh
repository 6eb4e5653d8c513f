// The totals of all elements of a row: a sum, such as that of the squares, and, in quantised rows, the largest absolute
// value. The order of the sum does not depend on the launch shape. The values of a packet are added as a tree of neighbours. Packet p
// belongs to column p modulo kNormColumns, and a column adds its packets in ascending order. The columns are added as a
// tree of neighbours. So the bits of a row depend on its values only.
#pragma once
#include "kernels/operand.cuh"

namespace symmetra::kernels {

/// Packets of a row.
template <class Element>
SYMMETRA_DEVICE uint32_t packets_of(uint32_t hidden) {
  return (hidden + kValues<Element, 4> - 1) / kValues<Element, 4>;
}

/// The sum of a power of two of values: a tree of neighbours.
template <uint32_t kCount>
SYMMETRA_DEVICE float tree_sum(float (&values)[kCount]) {
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kCount; step *= 2) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; i += 2 * step) values[i] = platform::add(values[i], values[i + step]);
  }
  return values[0];
}

/// The sum of the squares of a packet's values.
template <uint32_t kCount>
SYMMETRA_DEVICE float sum_of_squares(const float (&values)[kCount]) {
  float squares[kCount];
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) squares[i] = platform::multiply(values[i], values[i]);
  return tree_sum(squares);
}

/// The larger of two absolute values. A NaN counts as the largest.
SYMMETRA_DEVICE float larger(float a, float b) { return platform::bits_of(a) > platform::bits_of(b) ? a : b; }

/// The totals of some packets of a row.
struct RowTotals {
  float sum;
  float largest;

  /// The totals after adding those of later packets.
  SYMMETRA_DEVICE RowTotals with(const RowTotals& behind) const {
    return {platform::add(sum, behind.sum), larger(largest, behind.largest)};
  }
};

/// The columns of one row at a time, in block-shared memory. A missing column of a short row would be +0, which changes
/// neither a sum, except the sign of a zero, nor a largest absolute value, so it is left out.
class Columns {
 public:
  /// `largest`: the same amount of shared memory, for the largest absolute value in a row; null: not requested.
  SYMMETRA_DEVICE Columns(float* sums, uint32_t packets, float* largest = nullptr)
      : sums_(sums), largest_(largest), count_(packets < kNormColumns ? packets : kNormColumns) {}

  SYMMETRA_DEVICE uint32_t count() const { return count_; }
  SYMMETRA_DEVICE bool wants_largest() const { return largest_ != nullptr; }

  /// Adds a packet to its column: its sum, and its largest absolute value if requested. One thread adds all packets
  /// of a column, in ascending order.
  SYMMETRA_DEVICE void add(uint32_t packet, const RowTotals& of_packet) const {
    const uint32_t column = packet % kNormColumns;
    const bool first = packet < kNormColumns;
    sums_[column] = first ? of_packet.sum : platform::add(sums_[column], of_packet.sum);
    if (largest_ != nullptr) largest_[column] = first ? of_packet.largest : larger(largest_[column], of_packet.largest);
  }

  /// The totals of all columns, for every thread of the block. All threads call it, and sync before they add to the
  /// columns of another row.
  SYMMETRA_DEVICE RowTotals total() const {
    uint32_t level = 0, count = count_;
    while (count > platform::kTeam) {
      platform::sync_block();
      const uint32_t folded = (count + kFold - 1) / kFold;
      for (uint32_t i = platform::thread(); i < folded * platform::kTeam; i += platform::threads()) {
        const RowTotals part = fold(level, count, i);
        if (i % platform::kTeam != 0) continue;
        sums_[level + count + i / platform::kTeam] = part.sum;
        if (largest_ != nullptr) largest_[level + count + i / platform::kTeam] = part.largest;
      }
      level += count;
      count = folded;
    }
    platform::sync_block();
    if (platform::kTeam == 1) return {sums_[level], largest_ != nullptr ? largest_[level] : 0.0f};
    return fold(level, count, platform::thread() % platform::kTeam);
  }

 private:
  /// Columns that are folded into one at a time: by a team, one column for each thread, or by one thread.
  static constexpr uint32_t kFold = platform::kTeam == 1 ? kNormFold : platform::kTeam;

  /// The totals of the columns that are folded with column `i`, among the `count` columns from `level` on. If a team is
  /// one thread, the thread folds kFold columns.
  SYMMETRA_DEVICE RowTotals fold(uint32_t level, uint32_t count, uint32_t i) const {
    if constexpr (platform::kTeam == 1) {
      const uint32_t first = level + i * kFold, end = level + count;
      float part[kFold], most = 0.0f;
      for (uint32_t k = 0; k < kFold; ++k) part[k] = first + k < end ? sums_[first + k] : 0.0f;
      for (uint32_t k = 0; k < kFold && largest_ != nullptr; ++k) most = larger(most, first + k < end ? largest_[first + k] : 0.0f);
      return {tree_sum(part), most};
    } else {
      RowTotals totals{platform::team_sum(i < count ? sums_[level + i] : 0.0f), 0.0f};
      if (largest_ != nullptr) {
        const uint32_t bits = i < count ? platform::bits_of(largest_[level + i]) : 0;
        totals.largest = platform::f32_of(platform::team_max(kFold, bits));  // absolute values have the order of their
                                                                             // bits, and NaNs are above
      }
      return totals;
    }
  }

  float* sums_;
  float* largest_;
  uint32_t count_;
};

/// One row of an operand. Packets that do not begin at a multiple of their size are accessed by element.
template <class Element, bool kWhole = false>
class Row {
 public:
  SYMMETRA_DEVICE Row(const void* base, uint64_t start, uint32_t count)
      : at_(reinterpret_cast<uintptr_t>(base) + start * Element::kBytes), cut_(count, at_ % sizeof(Words<4>) == 0) {}

  /// A packet after the row's end is zero.
  SYMMETRA_DEVICE Words<4> load(uint32_t packet) const { return cut_.load(reinterpret_cast<const uint8_t*>(at_), packet); }
  /// A packet after the row's end is not written.
  SYMMETRA_DEVICE void store(uint32_t packet, const Words<4>& data) const { cut_.store(reinterpret_cast<uint8_t*>(at_), packet, data); }
  SYMMETRA_DEVICE uint32_t packets() const { return cut_.packets(); }

 private:
  uintptr_t at_;
  Packets<Element, Words<4>> cut_;
};

/// One row of an operand of whole packets, at multiples of the packet size.
template <class Element>
class Row<Element, true> {
 public:
  SYMMETRA_DEVICE Row(const void* base, uint64_t start, uint32_t) : at_(reinterpret_cast<uintptr_t>(base) + start * Element::kBytes) {}

  SYMMETRA_DEVICE Words<4> load(uint32_t packet) const { return platform::load<Words<4>>(at(packet)); }
  SYMMETRA_DEVICE void store(uint32_t packet, const Words<4>& data) const { platform::store(at(packet), data); }

 private:
  SYMMETRA_DEVICE void* at(uint32_t packet) const { return reinterpret_cast<void*>(at_ + packet * sizeof(Words<4>)); }

  uintptr_t at_;
};

}  // namespace symmetra::kernels
