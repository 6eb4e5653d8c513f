// The data of packets.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// The data of one packet, as 32-bit words.
template <uint32_t kWords>
struct alignas(4 * kWords) Words {
  uint32_t word[kWords] SYMMETRA_ZERO_ON_HOST;
};

}  // namespace symmetra::kernels
