// What all elements of a row add up to: the sum of the squares, and in quantised rows the largest size. The sum has an
// order that no launch shape changes. The squares of a packet are added as a tree of
// neighbours. Packet p belongs to column p modulo kNormColumns, and a column adds its packets in ascending order. The
// columns are added as a tree of neighbours. So the bits of a row depend on its values alone.
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

/// The larger of two sizes, which have no sign. A NaN wins.
SYMMETRA_DEVICE float larger(float a, float b) { return platform::bits_of(a) > platform::bits_of(b) ? a : b; }

/// What all packets of a row add up to.
struct RowTotals {
  float squares;
  float largest;
};

/// The columns of one row at a time, in shared memory of the block. Columns that a row does not have are +0, which
/// changes neither a sum of squares nor a largest size, so they are left out.
class Columns {
 public:
  /// `largest`: as much shared memory again, for the largest size in a row; null: not asked for.
  SYMMETRA_DEVICE Columns(float* squares, uint32_t packets, float* largest = nullptr)
      : squares_(squares), largest_(largest), count_(packets < kNormColumns ? packets : kNormColumns) {}

  SYMMETRA_DEVICE uint32_t count() const { return count_; }
  SYMMETRA_DEVICE bool wants_largest() const { return largest_ != nullptr; }

  /// Adds a packet to its column: its squares, and its largest size if that is asked for. One thread adds all packets of
  /// a column, in ascending order.
  SYMMETRA_DEVICE void add(uint32_t packet, const RowTotals& of_packet) const {
    const uint32_t column = packet % kNormColumns;
    const bool first = packet < kNormColumns;
    squares_[column] = first ? of_packet.squares : platform::add(squares_[column], of_packet.squares);
    if (largest_ != nullptr) largest_[column] = first ? of_packet.largest : larger(largest_[column], of_packet.largest);
  }

  /// The totals of all columns, for every thread of the block. All threads call it, and sync before they add to the
  /// columns of another row.
  SYMMETRA_DEVICE RowTotals total() const {
    uint32_t level = 0, count = count_;
    while (count > 1) {
      platform::sync_block();
      const uint32_t folded = (count + kNormFold - 1) / kNormFold;
      for (uint32_t i = platform::thread(); i < folded; i += platform::threads()) {
        squares_[level + count + i] = folded_squares(level + i * kNormFold, level + count);
        if (largest_ != nullptr) largest_[level + count + i] = folded_largest(level + i * kNormFold, level + count);
      }
      level += count;
      count = folded;
    }
    platform::sync_block();
    return {squares_[level], largest_ != nullptr ? largest_[level] : 0.0f};
  }

 private:
  SYMMETRA_DEVICE float folded_squares(uint32_t first, uint32_t end) const {
    float part[kNormFold];
    SYMMETRA_UNROLL
    for (uint32_t k = 0; k < kNormFold; ++k) part[k] = first + k < end ? squares_[first + k] : 0.0f;
    return tree_sum(part);
  }
  SYMMETRA_DEVICE float folded_largest(uint32_t first, uint32_t end) const {
    float most = 0.0f;
    SYMMETRA_UNROLL
    for (uint32_t k = 0; k < kNormFold; ++k) most = larger(most, first + k < end ? largest_[first + k] : 0.0f);
    return most;
  }

  float* squares_;
  float* largest_;
  uint32_t count_;
};

/// One row of an operand. Packets that do not begin at a multiple of their size move by element.
template <class Element>
class Row {
 public:
  SYMMETRA_DEVICE Row(const void* base, uint64_t start, uint32_t count)
      : at_(reinterpret_cast<uintptr_t>(base) + start * Element::kBytes), cut_(count, at_ % sizeof(Words<4>) == 0) {}

  /// A packet behind the row's end is zero.
  SYMMETRA_DEVICE Words<4> load(uint32_t packet) const { return cut_.load(reinterpret_cast<const uint8_t*>(at_), packet); }
  /// Of a packet behind the row's end nothing is written.
  SYMMETRA_DEVICE void store(uint32_t packet, const Words<4>& data) const { cut_.store(reinterpret_cast<uint8_t*>(at_), packet, data); }
  SYMMETRA_DEVICE uint32_t packets() const { return cut_.packets(); }

 private:
  uintptr_t at_;
  Packets<Element, Words<4>> cut_;
};

}  // namespace symmetra::kernels
