// The work units of a call, which the blocks of a rank take in turn. The link serves some multiprocessors more slowly
// than others, so blocks with equal shares would end at very different times: those of a push of 4096 rows between 46
// and 98 microseconds on an H100.
#pragma once
#include "kernels/call.cuh"
#include "kernels/experts/headers.cuh"

namespace symmetra::kernels {

/// Prefetches units: a block requests its next unit while it works on another, and reads the answer after a sync.
class Turns {
 public:
  /// `most`: the largest number of units. If there are at least as many blocks, each block takes the unit of its own
  /// number. `words`: kWords words in block-shared memory. Consecutive calls of a region alternate between two
  /// counters, and GridBarrier::leave clears the other. All threads of the block call it; a sync follows.
  SYMMETRA_DEVICE Turns(const ExpertArgs& args, const Call& call, uint64_t most, uint32_t* words)
      : count_(counts(args) + call.epoch % 2), words_(words), fixed_(most <= platform::blocks()) {
    ask();
  }

  /// The unit that was requested; kNone: there are no more units.
  SYMMETRA_DEVICE uint32_t unit() const { return fixed_ ? (asked_ == 1 ? platform::block() : kNone) : words_[(asked_ - 1) % 2]; }

  /// Requests the next unit. All threads call it after they have read the current unit; a sync follows.
  SYMMETRA_DEVICE void ask() {
    // The last thread does this, because it has the least work of a row.
    if (!fixed_ && platform::thread() == platform::threads() - 1) words_[asked_ % 2] = platform::take_relaxed(count_);
    ++asked_;
  }

  /// Clears the counter of the next call. One thread calls it in each call.
  SYMMETRA_DEVICE static void clear_next(const ExpertArgs& args, uint32_t epoch) { counts(args)[(epoch + 1) % 2] = 0; }

  static constexpr uint32_t kWords = 2;

 private:
  SYMMETRA_DEVICE static uint32_t* counts(const ExpertArgs& args) { return reinterpret_cast<uint32_t*>(args.calls + kMaxBlocks); }

  uint32_t* count_;
  uint32_t* words_;
  bool fixed_;  ///< each block takes one unit
  uint32_t asked_ = 0;
};

}  // namespace symmetra::kernels
