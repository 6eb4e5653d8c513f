// The numbers of ranks and channels in kernels: types of their own, so that swapped arguments do not compile.
#pragma once
#include "symmetra/device/platform.hpp"

namespace symmetra::device {

/// The number of a rank in its group. A byte count, a value or a channel in its place does not compile.
struct Rank {
  uint32_t number;
  SYMMETRA_DEVICE constexpr explicit Rank(uint32_t rank) : number(rank) {}
};

/// The number of a channel of signals.
struct Channel {
  uint32_t number;
  SYMMETRA_DEVICE constexpr explicit Channel(uint32_t channel) : number(channel) {}
};

}  // namespace symmetra::device
