/// \file
/// Norms of rows that are summed over ranks.
#pragma once

#include <cstddef>
#include <optional>

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

/// Rows to sum over all ranks, and what becomes of their sum, for Collectives::all_reduce_norm and its scattered forms. A row has as many
/// elements as `weight`, whose type is that of the rows or kF32. All other operands have the type of `input`. Must not outlive the
/// operands' sources.
struct RowNorm {
  RowNorm(ConstOperand rows, ConstOperand weights, RmsNorm how = RmsNorm()) : input(rows), weight(weights), norm(how) {}

  ConstOperand input;
  ConstOperand weight;
  RmsNorm norm;
  /// Added to the sum: x = T(sum + residual), with T the type of the rows. Equal on all ranks, unless it is scattered.
  std::optional<ConstOperand> residual{};
  /// Receives x: the sum with the residual, or the sum itself without one. May be the memory of the residual, or of the input.
  std::optional<Operand> residual_out{};
  /// Receives the normed rows. May be the memory of the input.
  std::optional<Operand> output{};
  /// Elements of an output row, whose last elements are zeros; 0: as many as `weight` has.
  std::size_t width = 0;
  /// How the rows are summed.
  Algorithm algorithm = Algorithm::kAuto;
};

}  // namespace symmetra
