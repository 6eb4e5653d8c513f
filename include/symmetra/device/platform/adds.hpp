// What the sum of a multicast load adds.
#pragma once
#include <cstdint>

namespace symmetra::platform {

/// Sixteen bytes of values. Halves are added in single precision and rounded once; integers wrap.
enum class Adds { kNothing, kF32, kF16, kBF16, kWords, kDoubleWords };

/// Bytes of a value.
constexpr uint32_t added_bytes(Adds adds) { return adds == Adds::kF16 || adds == Adds::kBF16 ? 2 : adds == Adds::kDoubleWords ? 8 : 4; }

}  // namespace symmetra::platform
