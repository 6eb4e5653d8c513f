// Factors whose GEMMs are known without a GEMM, in every type, and their places in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ranks.hpp"

namespace test {

using namespace symmetra;
using Values = std::vector<double>;

constexpr std::size_t kInner = 16, kColumns = 32;

/// Elements as a type has them in memory. Elements of f8 are 0, 1 and 2.
inline std::vector<std::uint8_t> stored(Dtype dtype, const Values& values) {
  const std::size_t bytes = size_bytes(dtype);
  std::vector<std::uint8_t> all(values.size() * bytes);
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto value = static_cast<float>(values[at]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == Dtype::kBF16) bits >>= 16;
    if (dtype == Dtype::kF8E4M3) bits = value == 2 ? 0x40 : value == 1 ? 0x38 : 0;
    std::memcpy(&all[at * bytes], &bits, bytes);
  }
  return all;
}

/// Elements of f32 or bf16.
inline Values loaded(const DeviceBuffer& buffer, const Stream& stream) {
  const std::size_t bytes = size_bytes(buffer.dtype());
  std::vector<std::uint8_t> all(buffer.count() * bytes);
  buffer.read(static_cast<void*>(all.data()), stream);
  Values values;
  for (std::size_t at = 0; at < buffer.count(); ++at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &all[at * bytes], bytes);
    if (bytes == 2) bits <<= 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    values.push_back(static_cast<double>(value));
  }
  return values;
}

inline DeviceBuffer placed(const Stream& stream, const Device& device, Dtype dtype, const Values& values) {
  DeviceBuffer buffer(device, values.size(), dtype);
  buffer.write(static_cast<const void*>(stored(dtype, values).data()), stream);
  return buffer;
}

/// The values of `of(row, column)`, row after row.
template <class Of>
Values each(std::size_t rows, std::size_t columns, const Of& of) {
  Values all;
  for (std::size_t at = 0; at < rows * columns; ++at) all.push_back(static_cast<double>(of(at / columns, at % columns)));
  return all;
}

/// The elements of a row of the left factor of a rank.
inline std::size_t left_of(std::size_t rank, std::size_t row) { return 1 + (rank + row) % 2; }
/// The elements of a column of the right factor `which` of every rank.
inline std::size_t right_of(std::size_t which, std::size_t column) { return which == 0 ? column % 2 : 1; }
/// The scale of a row or column.
inline std::size_t scale_of(std::size_t number) { return 1 + number % 2; }

/// The types of a GEMM, and whether it has scales of rows and a bias.
struct Kind {
  Numeric numeric;
  Dtype factors;
  bool scaled;
  bool bias;

  Product product() const {
    Product product(kInner, kColumns, numeric);
    if (scaled) product.scaling = Product::Scaling::kRows;
    product.bias = bias;
    return product;
  }

  /// The GEMM of `rows` rows of a rank with right factor `which`, without the bias.
  Values result(std::size_t rank, std::size_t rows, std::size_t which) const {
    return each(rows, kColumns, [&](std::size_t row, std::size_t column) {
      return kInner * left_of(rank, row) * right_of(which, column) * (scaled ? scale_of(row) * scale_of(column) : 1);
    });
  }

  /// The bias of a column is its number modulo 7.
  void add_bias(Values& result) const {
    for (std::size_t at = 0; bias && at < result.size(); ++at) result[at] += static_cast<double>(at % kColumns % 7);
  }
};

inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{Numeric::f32(), Dtype::kF32, false, true},
                                        {Numeric::bf16(), Dtype::kBF16, false, false},
                                        {Numeric::f8(), Dtype::kF8E4M3, true, true}};
  return all;
}

/// The factors of a rank in the memory of its device.
struct Placed {
  Placed(const Stream& stream, const Device& device, const Kind& kind, std::size_t rank, std::size_t rows, std::size_t which = 0)
      : scaled(kind.scaled),
        biased(kind.bias),
        left(placed(stream, device, kind.factors, each(rows, kInner, [&](auto row, auto) { return left_of(rank, row); }))),
        right(placed(stream, device, kind.factors, each(kColumns, kInner, [&](auto column, auto) { return right_of(which, column); }))),
        left_scales(placed(stream, device, Dtype::kF32, each(1, rows, [](auto, auto row) { return scale_of(row); }))),
        right_scales(placed(stream, device, Dtype::kF32, each(1, kColumns, [](auto, auto column) { return scale_of(column); }))),
        bias(placed(stream, device, kind.product().result, each(1, kColumns, [](auto, auto column) { return column % 7; }))) {}

  Factor left_factor() const { return scaled ? Factor(left).scaled(left_scales) : Factor(left); }
  Factor right_factor() const {
    const Factor factor = scaled ? Factor(right).scaled(right_scales) : Factor(right);
    return biased ? factor.biased(bias) : factor;
  }

  bool scaled, biased;
  DeviceBuffer left, right, left_scales, right_scales, bias;
};

}  // namespace test
