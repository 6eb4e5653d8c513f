// Measures the hardware alone: a launch, and plain stores to peers.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/platform.hpp"

namespace symmetra::kernels {

/// Copies the packets to every target, several in flight at a time. Without targets it is an empty kernel.
SYMMETRA_KERNEL void probe(SYMMETRA_ARGS(ProbeArgs) args) {
  struct alignas(16) Words16 {
    uint64_t word[2];
  };
  constexpr uint32_t kInFlight = 4;
  platform::wait_prior();
  platform::release_next();
  const auto* from = static_cast<const Words16*>(args.from);
  const uint64_t step = uint64_t{platform::threads()} * platform::blocks();
  for (uint64_t i = uint64_t{platform::block()} * platform::threads() + platform::thread(); i < args.packets; i += kInFlight * step) {
    Words16 data[kInFlight] = {};
    SYMMETRA_UNROLL
    for (uint32_t u = 0; u < kInFlight; ++u) {
      if (i + u * step < args.packets) data[u] = platform::load<Words16>(from + i + u * step);
    }
    for (uint32_t target = 0; target < args.targets; ++target) {
      auto* to = static_cast<Words16*>(args.to[target]);
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kInFlight; ++u) {
        if (i + u * step < args.packets) platform::store(to + i + u * step, data[u]);
      }
    }
  }
}

/// An empty kernel with a larger argument block.
SYMMETRA_KERNEL void wide_probe(SYMMETRA_ARGS(WideProbeArgs)) {
  platform::wait_prior();
  platform::release_next();
}

static_assert(sizeof(ProbeArgs) == sizeof(AllReduceArgs) && sizeof(WideProbeArgs) == sizeof(ReceiveArgs), "launches that cost as much");

}  // namespace symmetra::kernels
