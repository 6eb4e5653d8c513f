// What every collective kernel does first and last.
#pragma once
#include "kernels/numeric.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// One call on a region, as the state left by the call before tells it.
struct Call {
  uint32_t epoch;
  uint32_t previous;  ///< packets per source of the call before
  uint32_t poisoned;  ///< nonzero: this rank has given up before; it sends nothing, its data are undefined
};

/// Asks for the state; platform::wait_prior has been called. What else a thread needs from
/// memory it asks for before it uses the answer, and what it can compute it computes then.
SYMMETRA_DEVICE Call begin_call(const BlockState* state, const Wait& wait) {
  const Words<2> entry = platform::load<Words<2>>(state + platform::block());
  const uint32_t failed = device::kBounded ? platform::load_relaxed(&wait.progress->failed) : 0;  // another block may be failing now
  return {entry.word[0], entry.word[1], failed};
}

/// Every thread of the block has passed a sync since begin_call: all have read the state.
SYMMETRA_DEVICE void end_telling(BlockState* state, uint32_t epoch, uint32_t packets) {
  const Words<2> entry{{epoch + 1 == kEpochModulus ? 0 : epoch + 1, packets}};
  const uint32_t step = platform::threads() * platform::blocks();
  for (uint32_t i = platform::block() + platform::thread() * platform::blocks(); i < kMaxBlocks; i += step) {
    platform::store(state + i, entry);
  }
}

/// The same for a collective, which is counted.
SYMMETRA_DEVICE void end_call(BlockState* state, const Wait& wait, uint32_t epoch, uint32_t packets) {
  end_telling(state, epoch, packets);
  // By a thread that has no sum to wait for.
  if (platform::block() == 0 && platform::thread() == platform::threads() - 1) platform::add_relaxed(&wait.progress->done, 1);
}

}  // namespace symmetra::kernels
