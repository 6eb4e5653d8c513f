// What every collective kernel does first and last.
#pragma once
#include "kernels/numeric.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// One call on a region, as the state left by the call before tells it.
struct Call {
  uint32_t epoch;
  uint32_t previous;  ///< packets per source of the call before
  bool poisoned;      ///< this rank has given up before: it sends nothing, its data are undefined
};

/// The kernel before has ended: platform::wait_prior. What else a thread needs first it loads
/// before this, so that all is on its way at the same time.
SYMMETRA_DEVICE Call begin_call(const BlockState* state, const Wait& wait) {
  Words<2> entry = platform::load<Words<2>>(state + platform::block());
  uint32_t failed = platform::load_relaxed(&wait.progress->failed);  // another block may be failing now
  if (platform::block() == 0 && platform::thread() == 0) platform::add_relaxed(&wait.progress->started, 1);
  platform::keep(entry.word[0]);
  platform::keep(failed);
  return {entry.word[0], entry.word[1], failed != 0};
}

/// Every thread of the block has passed a sync since begin_call: all have read the state.
SYMMETRA_DEVICE void end_call(BlockState* state, const Wait& wait, uint32_t epoch, uint32_t packets) {
  const Words<2> entry{{epoch + 1 == kEpochModulus ? 0 : epoch + 1, packets}};
  const uint32_t step = platform::threads() * platform::blocks();
  for (uint32_t i = platform::block() + platform::thread() * platform::blocks(); i < kMaxBlocks; i += step) {
    platform::store(state + i, entry);
  }
  if (platform::block() == 0 && platform::thread() == 0) platform::add_relaxed(&wait.progress->done, 1);
}

}  // namespace symmetra::kernels
