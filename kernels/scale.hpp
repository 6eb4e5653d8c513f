// The argument block of a product with one factor, a part of kernels/args.hpp.
#pragma once
#include <cstdint>

namespace symmetra::kernels {

/// Most blocks of a scale, and most threads of a block.
constexpr uint32_t kMostScaleBlocks = 1024;
constexpr uint32_t kMostScaleThreads = 512;

/// Rows of elements of this rank, each element times one factor. No other rank takes part.
struct ScaleArgs {
  const void* input;      ///< own
  void* output;           ///< own; may be the input
  const void* factor;     ///< own; one element, read when the kernel runs; null: the factor is `value`
  uint64_t value;         ///< the bits of the factor, from the lowest on
  uint64_t elems;         ///< of a row
  uint64_t input_pitch;   ///< elements from the start of a row of the input to that of the next
  uint64_t output_pitch;  ///< elements from the start of a row of the output to that of the next
  uint32_t rows;
  uint32_t dtype;
};

}  // namespace symmetra::kernels
