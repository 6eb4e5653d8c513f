// The first and last steps of every collective kernel.
#pragma once
#include "kernels/numeric.cuh"
#include "kernels/times.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// One call on a region, from the state that the previous call left.
struct Call {
  uint32_t epoch;
  uint32_t previous;  ///< packets per source of the previous call
  uint32_t poisoned;  ///< nonzero: this rank has given up before; it sends nothing and its data are undefined
};

/// Loads the state, after platform::wait_prior. To hide the latency, a thread issues its other loads before it uses the
/// state, and computes meanwhile.
SYMMETRA_DEVICE Call begin_call(const BlockState* state, const Wait& wait) {
  const Words<2> entry = platform::load<Words<2>>(state + platform::block());
  begin_times(wait);
  const uint32_t failed = device::kBounded ? platform::load_relaxed(&wait.progress->failed) : 0;  // another block may be failing now
  return {entry.word[0], entry.word[1], failed};
}

/// Advances the state. Every thread of the block has passed a sync since begin_call, so all have read the old state.
SYMMETRA_DEVICE void advance_state(BlockState* state, uint32_t epoch, uint32_t packets) {
  const Words<2> entry{{epoch + 1 == kEpochModulus ? 0 : epoch + 1, packets}};
  const uint32_t step = platform::threads() * platform::blocks();
  for (uint32_t i = platform::block() + platform::thread() * platform::blocks(); i < kMaxBlocks; i += step) {
    platform::store(state + i, entry);
  }
}

/// Advances the state and counts one finished collective. Every thread of the block has passed a sync since begin_call.
SYMMETRA_DEVICE void end_call(BlockState* state, const Wait& wait, uint32_t epoch, uint32_t packets) {
  advance_state(state, epoch, packets);
  // The last thread does it, because it has no reduction to wait for.
  if (platform::block() == 0 && platform::thread() == platform::threads() - 1) platform::add_relaxed(&wait.progress->done, 1);
  end_times(wait);
}

}  // namespace symmetra::kernels
