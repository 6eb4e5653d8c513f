// Matrices of small whole numbers, whose products every type holds exactly, and their places in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "ranks.hpp"

namespace test {

using namespace symmetra;
using Values = std::vector<double>;

/// Row after row.
struct Matrix {
  std::size_t rows, columns;
  Values values;

  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  /// The elements as a weight `[columns][rows]` has them.
  Values turned() const {
    Values all;
    for (std::size_t column = 0; column < columns; ++column)
      for (std::size_t row = 0; row < rows; ++row) all.push_back(at(row, column));
    return all;
  }
};

/// Numbers from -1 to 1; every second row is zeros, so that sums stay small.
inline Matrix draw(std::uint64_t seed, std::size_t rows, std::size_t columns, bool sparse) {
  std::mt19937_64 random(seed);
  Matrix drawn{rows, columns, Values(rows * columns)};
  for (std::size_t at = 0; at < drawn.values.size(); ++at) {
    const double value = static_cast<double>(random() % 3) - 1;
    drawn.values[at] = sparse && at / columns % 2 == 1 ? 0 : value;
  }
  return drawn;
}

/// 1 and 2 in turns.
inline Values scales(std::size_t count) {
  Values all(count);
  for (std::size_t at = 0; at < count; ++at) all[at] = 1 + static_cast<double>(at % 2);
  return all;
}

/// Elements as a type has them in memory; each is a whole number of at most 8 bits.
inline std::vector<std::uint8_t> stored(Dtype dtype, const Values& values) {
  const std::size_t bytes = size_bytes(dtype);
  std::vector<std::uint8_t> all(values.size() * bytes);
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto value = static_cast<float>(values[at]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == Dtype::kBF16) bits >>= 16;
    // Of -2, -1, 0, 1 and 2.
    if (dtype == Dtype::kF8E4M3) {
      const std::uint32_t size = std::abs(value) == 2 ? 0x40 : value == 0 ? 0 : 0x38;
      bits = size | (value < 0 ? 0x80 : 0);
    }
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

/// The types of a GEMM, and whether it has scales of rows and a bias.
struct Kind {
  const char* name;
  Numeric numeric;
  Dtype factors;
  bool scaled;
  bool bias;

  Product product(std::size_t inner, std::size_t columns) const {
    Product product(inner, columns, numeric);
    if (scaled) product.scaling = Product::Scaling::kRows;
    product.bias = bias;
    return product;
  }
};

inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"f32", Numeric::f32(), Dtype::kF32, false, false},
      {"f32 with bias", Numeric::f32(), Dtype::kF32, false, true},
      {"bf16", Numeric::bf16(), Dtype::kBF16, false, false},
      {"bf16 with bias", Numeric::bf16(), Dtype::kBF16, false, true},
      {"f8 with scales of rows and bias", Numeric::f8(), Dtype::kF8E4M3, true, true},
  };
  return all;
}

/// The factors of a rank: a part of the left factor, and a right factor of the rank.
struct Factors {
  Factors(const Kind& of, std::uint64_t seed, std::size_t rows, std::size_t inner, std::size_t columns)
      : kind(of), left(draw(seed, rows, inner, false)), right(draw(seed + 1, inner, columns, true)) {
    for (std::size_t column = 0; column < columns; ++column) bias.push_back(static_cast<double>((seed + column) % 7) - 3);
  }

  /// The GEMM of some rows with the right factor, without the bias.
  Matrix product(const Matrix& rows) const {
    const Values by_row = scales(rows.rows), by_column = scales(right.columns);
    Matrix result{rows.rows, right.columns, {}};
    for (std::size_t row = 0; row < rows.rows; ++row)
      for (std::size_t column = 0; column < right.columns; ++column) {
        double sum = 0;
        for (std::size_t k = 0; k < right.rows; ++k) sum += rows.at(row, k) * right.at(k, column);
        result.values.push_back(kind.scaled ? sum * by_row[row] * by_column[column] : sum);
      }
    return result;
  }

  void add_bias(Matrix& result) const {
    if (!kind.bias) return;
    for (std::size_t at = 0; at < result.values.size(); ++at) result.values[at] += bias[at % result.columns];
  }

  Kind kind;
  Matrix left, right;
  Values bias;
};

/// The factors of a rank in the memory of its device.
struct Placed {
  Placed(const Stream& stream, const Device& device, const Factors& factors, Dtype result)
      : scaled(factors.kind.scaled),
        biased(factors.kind.bias),
        left(placed(stream, device, factors.kind.factors, factors.left.values)),
        right(placed(stream, device, factors.kind.factors, factors.right.turned())),
        left_scales(placed(stream, device, Dtype::kF32, scales(factors.left.rows))),
        right_scales(placed(stream, device, Dtype::kF32, scales(factors.right.columns))),
        bias(placed(stream, device, result, factors.bias)) {}

  Factor left_factor() const { return scaled ? Factor(left).scaled(left_scales) : Factor(left); }
  Factor right_factor() const {
    const Factor factor = scaled ? Factor(right).scaled(right_scales) : Factor(right);
    return biased ? factor.biased(bias) : factor;
  }

  bool scaled, biased;
  DeviceBuffer left, right, left_scales, right_scales, bias;
};

}  // namespace test
