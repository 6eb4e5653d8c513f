// The kind of addition of a multicast sum.
#pragma once
#include <cstdint>

namespace symmetra::platform {

/// Sixteen bytes of values. Halves are added in single precision and rounded once; integers wrap. 8-bit floats are added in
/// f16, which rounds every addition; the sum is rounded to the type.
enum class Adds { kNothing, kF32, kF16, kBF16, kE4M3, kE5M2, kWords, kDoubleWords };

/// Bytes of a value.
constexpr uint32_t added_bytes(Adds adds) {
  switch (adds) {
    case Adds::kE4M3:
    case Adds::kE5M2:
      return 1;
    case Adds::kF16:
    case Adds::kBF16:
      return 2;
    case Adds::kDoubleWords:
      return 8;
    default:
      return 4;
  }
}

}  // namespace symmetra::platform
