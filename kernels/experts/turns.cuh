// The units of a call, which the blocks of a rank take one after the other. The link gives some multiprocessors less than others, so
// blocks with equal shares would end far apart: those of a push of 4096 rows between 46 and 98 microseconds on an H100.
#pragma once
#include "kernels/call.cuh"
#include "kernels/experts/heads.cuh"

namespace symmetra::kernels {

/// Asks for units ahead: a block asks for the next one while it has another, and knows the answer behind a sync.
class Turns {
 public:
  /// `most`: of units. Blocks that are as many take one each, by their numbers. `words`: of block-shared memory, kWords. Calls of a
  /// region count in turn in one of two words, and GridBarrier::leave clears the other. All threads of the block call it; a sync follows.
  SYMMETRA_DEVICE Turns(const ExpertArgs& args, const Call& call, uint64_t most, uint32_t* words)
      : count_(counts(args) + call.epoch % 2), words_(words), fixed_(most <= platform::blocks()) {
    ask();
  }

  /// The unit that was asked for; kNone: there is no other.
  SYMMETRA_DEVICE uint32_t unit() const { return fixed_ ? (asked_ == 1 ? platform::block() : kNone) : words_[(asked_ - 1) % 2]; }

  /// Asks for the next unit. All threads call it, when they know the one before; a sync follows.
  SYMMETRA_DEVICE void ask() {
    // The last thread does it, because it has least of a row.
    if (!fixed_ && platform::thread() == platform::threads() - 1) words_[asked_ % 2] = platform::take_relaxed(count_);
    ++asked_;
  }

  /// Clears the count of the next call. One thread calls it in each call.
  SYMMETRA_DEVICE static void clear_next(const ExpertArgs& args, uint32_t epoch) { counts(args)[(epoch + 1) % 2] = 0; }

  static constexpr uint32_t kWords = 2;

 private:
  SYMMETRA_DEVICE static uint32_t* counts(const ExpertArgs& args) { return reinterpret_cast<uint32_t*>(args.calls + kMaxBlocks); }

  uint32_t* count_;
  uint32_t* words_;
  bool fixed_;  ///< blocks take one unit each
  uint32_t asked_ = 0;
};

}  // namespace symmetra::kernels
