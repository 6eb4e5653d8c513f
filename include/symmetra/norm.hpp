/// \file
/// Norms of rows that are summed over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

/// The root mean square norm of a row: y = x (weight + weight_offset) / sqrt(mean(x x) + epsilon).
struct RmsNorm {
  /// Added to the mean of the squares; at least 0. With 0, a row of zeros becomes NaN.
  float epsilon = 1e-6f;
  /// Added to every weight; 1 in Gemma models.
  float weight_offset = 0.0f;
};

/// The layer norm of a row: y = (x - mean(x)) (weight + weight_offset) / sqrt(variance(x) + epsilon), plus RowNorm::bias
/// if given. The variance is the mean of (x - mean(x)) (x - mean(x)).
struct LayerNorm {
  /// Added to the variance; at least 0. With 0, a row of equal values becomes NaN.
  float epsilon = 1e-5f;
  /// Added to every weight; 1 in Nemotron models.
  float weight_offset = 0.0f;
};

/// The norm of a row.
using Norm = std::variant<RmsNorm, LayerNorm>;

/// The format of quantised values. A quantised value is the nearest to a value, ties to even, and saturates.
enum class Narrow : std::uint32_t {
  kE4M3 = 0,  ///< 8 bits, at most 448; NaN 0x7F. Operands are Dtype::kF8E4M3.
  kE5M2 = 1,  ///< 8 bits, at most 57344; NaN 0x7F. Operands are Dtype::kF8E5M2.
  kE2M1 = 2,  ///< 4 bits, at most 6, which replaces a NaN. Two values in a byte, the even element in the low bits.
              ///< Operands are Dtype::kU8.
  kI8 = 3,    ///< Integers of 8 bits; a NaN becomes 0, and makes its scale NaN. Operands are Dtype::kI8.
};

/// The layout of scales: the place of the scale of group g of a row. `rows` is the number of rows, and n the number of
/// groups of a row.
enum class ScaleLayout : std::uint32_t {
  /// Place row n + g.
  kRows = 0,
  /// Place g rows + row. Scales in f32.
  kColumns = 1,
  /// Byte g % 4 of word (g / 4) (rows rounded up to 4) + row. The last column has `rows` words. Other bytes become zero. Scales in e8m0.
  kPackedColumns = 2,
  /// Blocks of 128 rows by 4 groups, as block-scaled GEMMs of GPUs read them: byte
  /// ((row / 128) (n rounded up to 4) / 4 + g / 4) 512 + (row % 32) 16 + (row % 128 / 32) 4 + g % 4. Memory for whole
  /// blocks; bytes without a row or a group are not modified. Scales of one byte.
  kSwizzled128x4 = 3,
};

/// The part of the normed rows y that shares a scale. With a the largest absolute value in that part, each step rounded
/// to f32: quantised value = nearest value of the format to (y inverse). `most` is the largest value of the format:
/// 448, 57344, 6, or 127.
enum class Scaling : std::uint32_t {
  /// One scale for all rows, `known_scale`; inverse = 1 / scale. Not kE2M1.
  kStatic = 0,
  /// A scale for each row in f32: max(a / most, 2^-126), 1 if a is 0, NaN if a is NaN or if the factor of the norm is
  /// infinite; inverse = 1 / scale. Not kE2M1.
  kPerToken = 1,
  /// A scale for each group in f32, by the formula of kPerToken for the group. Groups have a multiple of 16 elements,
  /// up to 2^20; the last may be short. Not kE2M1.
  kPerGroup = 2,
  /// A power of two for each group, as a byte (e8m0): byte b is 2^(b - 127), and 255 is NaN. The smallest for which a
  /// is at most `most` times the scale. Groups have a multiple of 16 elements, up to 2^20, that divides the width of a
  /// row. Not kI8.
  kMx = 3,
  /// f = nearest e4m3 to (g (a (1 / 6))) for each 16 elements, in Dtype::kU8, with g = `known_scale`; inverse = g / f,
  /// or 0 if f is 0. kE2M1 only; the width of a row is a multiple of 16.
  kNvfp4 = 4,
};

/// The description of quantised rows, without their memory.
struct QuantisedForm {
  Scaling scaling;
  Narrow to;
  /// Elements in a group of kPerGroup and kMx.
  std::size_t elems = 0;
  ScaleLayout layout = ScaleLayout::kRows;
};

namespace core {
struct QuantisedForm;

QuantisedForm form_of(const symmetra::QuantisedForm& form);
}  // namespace core

/// Normed rows in a narrow format, as values and scales, for as many rows as the output.
struct QuantisedRows {
  QuantisedRows(Scaling how, Narrow format, Operand codes) : scaling(how), to(format), values(codes) {}

  Scaling scaling;
  Narrow to;
  /// Receives rows with one quantised value for each element of an output row; of kE2M1, half as many bytes.
  Operand values;
  /// Receives the scales: f32, or bytes. Unset for kStatic.
  std::optional<Operand> scales{};
  /// One element of f32: the scale of kStatic, the global scale of kNvfp4. Unset for other formats.
  std::optional<ConstOperand> known_scale{};
  /// Elements in a group of kPerGroup and kMx.
  std::size_t elems = 0;
  ScaleLayout layout = ScaleLayout::kRows;
};

/// Rows to sum over all ranks, and the epilogue of their sum, for Collectives::all_reduce_norm and its scattered forms.
/// A row has as many elements as `weight`, whose type is that of the rows or kF32. All other operands, except the bias and those of
/// quantised rows, have the type of `input`. Must not outlive the operands' sources.
struct RowNorm {
  RowNorm(ConstOperand rows, ConstOperand weights, Norm how = RmsNorm()) : input(rows), weight(weights), norm(how) {}

  ConstOperand input;
  ConstOperand weight;
  Norm norm;
  /// Added to every row of a LayerNorm, before the row is rounded to its type. Of the type and length of `weight`, and
  /// equal on all ranks.
  std::optional<ConstOperand> bias{};
  /// Added to the sum: x = T(sum + residual), with T the type of the rows. Equal on all ranks, unless it is scattered.
  std::optional<ConstOperand> residual{};
  /// Receives x: the sum with the residual, or the sum itself without one. May be the memory of the residual, or of the
  /// input. In calls without an output, and in calls whose output is padded, all ranks write x over the residual, or
  /// none does: the place of the sum determines the transport.
  std::optional<Operand> residual_out{};
  /// Receives the normed rows. May be the memory of the input.
  std::optional<Operand> output{};
  /// Receives the normed rows in a narrow format.
  std::optional<QuantisedRows> quantised{};
  /// Elements of an output row, up to 2^31, whose last elements are zeros; 0: the number of elements of `weight`.
  std::size_t width = 0;
  /// The algorithm of the sum.
  Algorithm algorithm = Algorithm::kAuto;
};

}  // namespace symmetra
