// A barrier of an expert kernel with the kernels of the same call on all other ranks. The grids of ranks may have
// different sizes. The blocks of a grid need not run at once, except a few first blocks: each block waits for the first
// blocks of all ranks only.
//
// The region of a rank contains start flags of each rank and end flags of each rank's blocks. They are counters that
// only grow, by one step in each call. The start flags are followed by the verdicts of the own flag blocks, which peers
// read there.
#pragma once
#include "kernels/experts/turns.cuh"

namespace symmetra::kernels {

class GridBarrier {
 public:
  /// `words`: of block-shared memory, one for each rank.
  /// `op`: kOp*, for the status.
  SYMMETRA_DEVICE GridBarrier(const ExpertArgs& args, const ExpertPeers& peers, uint32_t op, const Call& call, uint32_t* words)
      : args_(args), peers_(peers), epoch_(call.epoch), waiter_(args.wait, op, call.epoch, call.poisoned != 0), start_flags_(words) {}

  /// The number of blocks that send start flags: at most the first kStartFlagBlocks, which a GPU runs at once.
  SYMMETRA_DEVICE static uint32_t flag_blocks() { return platform::blocks() < kStartFlagBlocks ? platform::blocks() : kStartFlagBlocks; }

  /// Notifies all ranks that this rank has begun the call. Work that does not need peers belongs between this function
  /// and `enter`. All blocks call it. `several`: in this kernel several blocks send start flags, which also report
  /// whether the block found an error; otherwise the first block sends the start flags of all. `wrong`: this block
  /// found an error and has written its verdict; equal on all threads of the block.
  SYMMETRA_DEVICE void begin(bool several = false, bool wrong = false) {
    several_ = several;
    sends_flags_ = platform::block() < (several ? flag_blocks() : 1) && !waiter_.gave_up();
    if (sends_flags_) notify(epoch_ + 1, wrong);
  }

  /// Returns true when all ranks have begun this call: their inputs may be read and their outputs written. Returns
  /// false on all threads when the wait gave up. In that case the first block withdraws its start flag, so that a late
  /// rank does not access memory whose owner has reported a failure. Other blocks do not withdraw theirs: the errors
  /// that they report are read only after the barrier.
  SYMMETRA_DEVICE bool enter() {
    bool wrong = false;
    const uint32_t each = several_ ? kStartFlagBlocks : 1;
    for (uint32_t item = platform::thread(); item < args_.world * each; item += platform::threads()) {
      const uint32_t peer = item / each, number = item - peer * each;
      uint32_t flag = 0;
      waiter_.until(peer, [&] {
        flag = platform::load_acquire(start_flag(args_.rank, peer, number));
        return static_cast<int32_t>((flag & ~kFlagMask) - ((epoch_ + 1) << kFlagBits)) >= 0;
      });
      if (number == 0) start_flags_[peer] = flag;
      wrong |= (flag & kWrong) != 0;
    }
    if (platform::sync_block_or(waiter_.gave_up())) {
      if (sends_flags_ && platform::block() == 0) notify(epoch_, false);
      return false;
    }
    wrong_ = several_ && platform::sync_block_or(wrong);
    return true;
  }

  /// After `enter`: whether a rank has found an error.
  SYMMETRA_DEVICE bool is_wrong() const { return wrong_; }
  /// The first flag block of a rank that found an error; kStartFlagBlocks: none.
  SYMMETRA_DEVICE uint32_t wrong_block(uint32_t rank) const {
    if ((start_flags_[rank] & kWrong) != 0) return 0;
    uint32_t number = 1;
    while (number < kStartFlagBlocks && (platform::load_relaxed(start_flag(args_.rank, rank, number)) & kWrong) == 0) ++number;
    return number;
  }
  /// The verdict of a flag block of a rank, in the memory of that rank.
  SYMMETRA_DEVICE RoutingHeader* verdict(uint32_t rank, uint32_t flag_block) const {
    return reinterpret_cast<RoutingHeader*>(area(rank) + kStartFlagBytes) + flag_block;
  }

  /// Called after the block's last access to a peer: notifies all ranks that the block is done. The first block waits
  /// until all blocks of all ranks are done. When all blocks of the kernel have ended, the writes of peers to this rank
  /// are visible, and memory that peers read may change. `wrote`: whether the kernel writes to peers.
  SYMMETRA_DEVICE void leave(bool wrote) {
    const uint32_t block = platform::block(), threads = platform::threads();
    if (block == 0) refresh();
    if (block == 0 && platform::thread() == 0) Turns::clear_next(args_, epoch_);
    platform::sync_block();  // orders what the block did before the flags
    for (uint32_t peer = platform::thread(); peer < args_.world && !waiter_.gave_up(); peer += threads) {
      if (peer == args_.rank) continue;
      if (wrote) {
        platform::store_release(end_flag(peer, args_.rank, block), epoch_ + 1);
      } else {
        platform::store_release_prior(end_flag(peer, args_.rank, block), epoch_ + 1);  // loads have ended: their values were used
      }
    }
    for (uint32_t peer = 0; peer < args_.world && block == 0; ++peer) {
      for (uint32_t i = platform::thread(); i < blocks_of(peer); i += threads) {
        waiter_.until(peer, [&] { return has_come(platform::load_acquire(end_flag(args_.rank, peer, i))); });
      }
    }
    platform::sync_block();
  }

 private:
  SYMMETRA_DEVICE uint8_t* area(uint32_t rank) const { return peers_.regions[rank] + peers_.barrier_offset; }
  SYMMETRA_DEVICE uint32_t* start_flag(uint32_t rank, uint32_t source, uint32_t number) const {
    return reinterpret_cast<uint32_t*>(area(rank)) + source * kStartFlagBlocks + number;
  }
  SYMMETRA_DEVICE uint32_t* end_flag(uint32_t rank, uint32_t source, uint32_t block) const {
    return reinterpret_cast<uint32_t*>(area(rank) + kStartFlagBytes + kVerdictBytes) + source * kMaxBlocks + block;
  }
  /// Steps of consecutive calls are consecutive, except where epochs wrap: there they skip a few values.
  SYMMETRA_DEVICE bool has_come(uint32_t step) const { return static_cast<int32_t>(step - (epoch_ + 1)) >= 0; }

  /// The lower bits of a start flag contain the number of blocks that will raise an end flag, and the error bit, so
  /// that one word carries everything.
  static constexpr uint32_t kFlagBits = 10, kFlagMask = (1u << kFlagBits) - 1, kWrong = 1u << 9;
  static_assert(kMaxBlocks < kWrong);

  SYMMETRA_DEVICE uint32_t blocks_of(uint32_t peer) const { return peer == args_.rank ? 0 : start_flags_[peer] & (kWrong - 1); }

  /// Sends this block's start flag to all ranks. Block 0 also sends the flags of unused slots: every slot is written in
  /// every call, so a stale counter can never be mistaken for a later one.
  SYMMETRA_DEVICE void notify(uint32_t step, bool wrong) const {
    const uint32_t flag = step << kFlagBits | platform::blocks();
    for (uint32_t item = platform::thread(); item < args_.world * kStartFlagBlocks; item += platform::threads()) {
      const uint32_t peer = item / kStartFlagBlocks, number = item - peer * kStartFlagBlocks;
      const uint32_t sender = several_ && number < platform::blocks() ? number : 0;
      if (sender != platform::block()) continue;
      uint32_t* const there = start_flag(peer, args_.rank, number);
      if (wrong && number == platform::block()) {
        platform::store_release(there, flag | kWrong);
      } else {
        platform::store_release_prior(there, flag);
      }
    }
  }

  /// An end flag that no call writes for 2^31 calls would look like a later one, so each call updates one flag of each
  /// rank. Peers write such a flag in the next call at the earliest: after the first block has raised its own end flag,
  /// which follows this function.
  SYMMETRA_DEVICE void refresh() const {
    const uint32_t block = epoch_ % kMaxBlocks;
    for (uint32_t peer = platform::thread(); peer < args_.world; peer += platform::threads()) {
      if (block >= blocks_of(peer)) platform::store_relaxed(end_flag(args_.rank, peer, block), epoch_ + 1);
    }
  }

  const ExpertArgs& args_;
  const ExpertPeers& peers_;
  uint32_t epoch_;
  device::Waiter waiter_;
  uint32_t* start_flags_;  ///< start flags of all ranks, in block-shared memory
  bool several_ = false;   ///< several blocks send start flags
  bool sends_flags_ = false;
  bool wrong_ = false;
};

}  // namespace symmetra::kernels
