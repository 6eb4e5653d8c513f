/// \file
/// GEMMs: by cuBLASLt on NVIDIA GPUs, by the Rust crate `matrixmultiply` on the CPU. cuBLASLt is found at run time.
/// docs/matmul.md has the formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "symmetra/capture.hpp"
#include "symmetra/device.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct Multiplier;
}

/// An 8-bit float of a factor. The numbers are stable.
enum class F8 : std::uint32_t {
  kE4M3 = 0,  ///< Dtype::kF8E4M3
  kE5M2 = 1,  ///< Dtype::kF8E5M2
};

/// The types of the factors of a GEMM. Products are accumulated in f32.
struct Numeric {
  /// The numbers are stable.
  enum class Kind : std::uint32_t { kF32 = 0, kTf32 = 1, kF16 = 2, kBF16 = 3, kF8 = 4 };

  /// Factors of f32, with all 24 bits.
  static constexpr Numeric f32() { return {Kind::kF32}; }
  /// Factors of f32 that a GPU rounds to 11 bits before it multiplies. The CPU keeps all 24.
  static constexpr Numeric tf32() { return {Kind::kTf32}; }
  /// Factors of f16.
  static constexpr Numeric f16() { return {Kind::kF16}; }
  /// Factors of bf16.
  static constexpr Numeric bf16() { return {Kind::kBF16}; }
  /// Factors of 8-bit floats. One of them is e4m3.
  static constexpr Numeric f8(F8 left = F8::kE4M3, F8 right = F8::kE4M3) { return {Kind::kF8, left, right}; }

  Kind kind;
  /// The type of the left factor of Kind::kF8.
  F8 left = F8::kE4M3;
  /// The type of the right factor of Kind::kF8.
  F8 right = F8::kE4M3;
};

/// The shape and the types of a GEMM `result = left right`, except the number of rows: with M rows, `left` is M x
/// inner, `right` is inner x columns, and `result` is M x columns, row-major.
///
/// Each element is relu(scale sum(left right) + bias) in f32, rounded once to the result's type; for some shapes
/// cuBLASLt also rounds the sum to that type before it adds a bias. The sum over `inner` is accumulated in f32, in an
/// order that the library chooses.
///
/// GEMMs of 8-bit floats need a row-major `left` and a column-major `right`, `inner` and `columns` that are multiples
/// of 16, factors that begin at multiples of 16 bytes, and no bias for a result of f32. Other types have no scales.
struct Product {
  /// The order of a matrix in memory, without gaps. The numbers are stable.
  enum class Order : std::uint32_t {
    kRows = 0,     ///< row-major: elements of a row are adjacent
    kColumns = 1,  ///< column-major: elements of a column are adjacent
  };

  /// The scales by which 8-bit floats are multiplied. Scales are f32. The numbers are stable.
  enum class Scaling : std::uint32_t {
    kNone = 0,    ///< no scales
    kTensor = 1,  ///< one scale for each factor
    kRows = 2,    ///< a scale for each row of the left factor, and one for each column of the right factor
  };

  /// A GEMM of a row-major left factor and a weight `[columns][inner]`, as models store it, with the usual result type:
  /// the factors' own, or bf16 for 8-bit floats. Throws kInvalidArgument for a number that is no Numeric.
  Product(std::size_t inner_elems, std::size_t column_count, Numeric types);

  /// Columns of the left factor, and rows of the right factor: K. 1 to 2^31 - 1.
  std::size_t inner;
  /// Columns of the right factor and of the result: N. 1 to 2^31 - 1.
  std::size_t columns;
  /// The number of GEMMs of equal shapes in one call. Their factors and results are contiguous; all share the bias and
  /// the scales.
  std::size_t count = 1;
  /// The types of the factors.
  Numeric numeric;
  /// The scales by which 8-bit floats are multiplied.
  Scaling scaling = Scaling::kNone;
  /// The order of the left factor in memory.
  Order left = Order::kRows;
  /// The order of the right factor in memory.
  Order right = Order::kColumns;
  /// The type of the result: of f32 and tf32 kF32; of f16 and bf16 the factors' own or kF32; of 8-bit floats kBF16, kF16 or kF32.
  Dtype result;
  /// Whether a bias is added to each row: `columns` elements of the result's type.
  bool bias = false;
  /// Whether elements below 0 become 0, after the bias.
  bool relu = false;
  /// Whether a GPU may accumulate products of 8-bit floats with fewer bits, which is faster.
  bool fast_accumulation = false;
};

/// A factor of a GEMM, with its scales and bias. Must not outlive the operands' sources.
struct Factor {
  Factor(ConstOperand memory) : operand(memory) {}
  /// A factor in a SymmetricBuffer, a DeviceBuffer or Adopted memory.
  template <class Memory,
            class = std::enable_if_t<!std::is_base_of_v<ConstOperand, Memory> && std::is_convertible_v<const Memory&, ConstOperand>>>
  Factor(const Memory& memory) : operand(memory) {}

  /// A factor with the scales by which its elements are multiplied, in f32: one, or one for each row of the left factor
  /// and each column of the right factor, see Product::Scaling.
  Factor scaled(ConstOperand by) const {
    Factor factor = *this;
    factor.scales = by;
    return factor;
  }
  /// A right factor with the bias that is added to each row of the result.
  Factor biased(ConstOperand by) const {
    Factor factor = *this;
    factor.bias = by;
    return factor;
  }

  ConstOperand operand;
  std::optional<ConstOperand> scales{};
  std::optional<ConstOperand> bias{};
};

/// A GEMM handle of a device. Move-only; usable from any thread. It may be destroyed before the work that it enqueued
/// is done, and before graphs of its calls, which keep its resources alive.
class Multiplier {
 public:
  /// Finds the library for a device, and allocates a workspace of 32 MiB on a GPU. Throws kUnsupported on AMD GPUs, and
  /// on NVIDIA GPUs if no cuBLASLt can be loaded, with the names that were tried (SYMMETRA_CUBLASLT_LIBRARY names
  /// another) and the function that a library lacks; kDevice if the library or the runtime refuses.
  explicit Multiplier(const Device& device);

  Multiplier(Multiplier&&) noexcept = default;
  Multiplier& operator=(Multiplier&&) noexcept = default;

  /// The library that multiplies, with its version and file name, or on the CPU the crate.
  std::string library() const;

  /// Enqueues `result = left right` with `rows` rows, and returns at once; the operands are used in stream order. On a
  /// stream, the first call of a shape takes some tens of microseconds more, because the library selects its kernel.
  /// Calls on different streams run one after another; those of a graph use a workspace of the graph. With `rows` = 0
  /// nothing is enqueued.
  ///
  /// Elements are exact if the sum is exact; otherwise the error of an element is at most K 2^-24 times the sum of the
  /// absolute products, for 8-bit floats on Hopper GPUs (K + K / 32) 2^-13 times that sum, plus a rounding to the
  /// result's type. On the CPU the bits of an element depend on its row and its column only.
  ///
  /// Throws kInvalidArgument for sizes, scales and fast accumulation that the types do not have, operands whose type,
  /// length or device does not fit, scales or a bias that are missing or needless, 8-bit factors that do not begin at a
  /// multiple of 16 bytes, and a result that overlaps another operand; kUnsupported for types and layouts without a
  /// library, for features that the library or the GPU lacks, and on a stream that is being captured; kDevice if the
  /// launch fails.
  void enqueue(const Product& product, std::size_t rows, const Factor& left, const Factor& right, Operand result, Queue queue) const;

 private:
  std::shared_ptr<core::Multiplier> core_;
};

}  // namespace symmetra
