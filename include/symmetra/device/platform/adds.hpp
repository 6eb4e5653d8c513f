// What the sum of a multicast load adds.
#pragma once

namespace symmetra::platform {

/// Sixteen bytes of values. Halves are added in single precision and rounded once; integers wrap.
enum class Adds { kF32, kF16, kBF16, kWords, kDoubleWords };

}  // namespace symmetra::platform
