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
  SYMMETRA_DEVICE GridBarrier(const ExpertArgs& args, const Call& call, uint32_t* words)
      : args_(args), epoch_(call.epoch), waiter_(args.wait, args.op, call.epoch, call.poisoned != 0), greetings_(words) {}

  /// The number of blocks that send start flags: at most the first kExpertGreeters, which a GPU runs at once.
  SYMMETRA_DEVICE static uint32_t greeters() { return platform::blocks() < kExpertGreeters ? platform::blocks() : kExpertGreeters; }

  /// Notifies all ranks that this rank has begun the call. Work that does not need peers belongs between this function
  /// and `enter`. All blocks call it. `several`: in this kernel several blocks send start flags, which also report
  /// whether the block found an error; otherwise the first block sends the start flags of all. `wrong`: this block
  /// found an error and has written its verdict; equal on all threads of the block.
  SYMMETRA_DEVICE void greet(bool several = false, bool wrong = false) {
    several_ = several;
    greets_ = platform::block() < (several ? greeters() : 1) && !waiter_.gave_up();
    if (greets_) tell(epoch_ + 1, wrong);
  }

  /// Returns true when all ranks have begun this call: their inputs may be read and their outputs written. Returns
  /// false on all threads when the wait gave up. In that case the first block withdraws its start flag, so that a late
  /// rank does not access memory whose owner has reported a failure. Other blocks do not withdraw theirs: the errors
  /// that they report are read only after the barrier.
  SYMMETRA_DEVICE bool enter() {
    bool wrong = false;
    const uint32_t each = several_ ? kExpertGreeters : 1;
    for (uint32_t item = platform::thread(); item < args_.world * each; item += platform::threads()) {
      const uint32_t peer = item / each, number = item - peer * each;
      uint32_t greeting = 0;
      waiter_.until(peer, [&] {
        greeting = platform::load_acquire(greeting_of(args_.rank, peer, number));
        return static_cast<int32_t>((greeting & ~kGreetingMask) - ((epoch_ + 1) << kGreetingBits)) >= 0;
      });
      if (number == 0) greetings_[peer] = greeting;
      wrong |= (greeting & kWrong) != 0;
    }
    if (platform::sync_block_or(waiter_.gave_up())) {
      if (greets_ && platform::block() == 0) tell(epoch_, false);
      return false;
    }
    wrong_ = several_ && platform::sync_block_or(wrong);
    return true;
  }

  /// After `enter`: whether a rank has found an error.
  SYMMETRA_DEVICE bool is_wrong() const { return wrong_; }
  /// The first flag block of a rank that found an error; kExpertGreeters: none.
  SYMMETRA_DEVICE uint32_t wrong_greeter(uint32_t rank) const {
    if ((greetings_[rank] & kWrong) != 0) return 0;
    uint32_t number = 1;
    while (number < kExpertGreeters && (platform::load_relaxed(greeting_of(args_.rank, rank, number)) & kWrong) == 0) ++number;
    return number;
  }
  /// The verdict of a flag block of a rank, in the memory of that rank.
  SYMMETRA_DEVICE ExpertHead* verdict(uint32_t rank, uint32_t greeter) const {
    return reinterpret_cast<ExpertHead*>(area(rank) + kExpertGreetingBytes) + greeter;
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
        platform::store_release(flag(peer, args_.rank, block), epoch_ + 1);
      } else {
        platform::store_release_prior(flag(peer, args_.rank, block), epoch_ + 1);  // loads have ended: their values were used
      }
    }
    for (uint32_t peer = 0; peer < args_.world && block == 0; ++peer) {
      for (uint32_t i = platform::thread(); i < blocks_of(peer); i += threads) {
        waiter_.until(peer, [&] { return has_come(platform::load_acquire(flag(args_.rank, peer, i))); });
      }
    }
    platform::sync_block();
  }

 private:
  SYMMETRA_DEVICE uint8_t* area(uint32_t rank) const { return args_.regions[rank] + args_.barrier_offset; }
  SYMMETRA_DEVICE uint32_t* greeting_of(uint32_t rank, uint32_t source, uint32_t number) const {
    return reinterpret_cast<uint32_t*>(area(rank)) + source * kExpertGreeters + number;
  }
  SYMMETRA_DEVICE uint32_t* flag(uint32_t rank, uint32_t source, uint32_t block) const {
    return reinterpret_cast<uint32_t*>(area(rank) + kExpertGreetingBytes + kExpertVerdictBytes) + source * kMaxBlocks + block;
  }
  /// Steps of consecutive calls are consecutive, except where epochs wrap: there they skip a few values.
  SYMMETRA_DEVICE bool has_come(uint32_t step) const { return static_cast<int32_t>(step - (epoch_ + 1)) >= 0; }

  /// The lower bits of a start flag contain the number of blocks that will raise an end flag, and the error bit, so
  /// that one word carries everything.
  static constexpr uint32_t kGreetingBits = 10, kGreetingMask = (1u << kGreetingBits) - 1, kWrong = 1u << 9;
  static_assert(kMaxBlocks < kWrong);

  SYMMETRA_DEVICE uint32_t blocks_of(uint32_t peer) const { return peer == args_.rank ? 0 : greetings_[peer] & (kWrong - 1); }

  /// Sends this block's start flag to all ranks. Block 0 also sends the flags of unused slots: every slot is written in
  /// every call, so a stale counter can never be mistaken for a later one.
  SYMMETRA_DEVICE void tell(uint32_t step, bool wrong) const {
    const uint32_t greeting = step << kGreetingBits | platform::blocks();
    for (uint32_t item = platform::thread(); item < args_.world * kExpertGreeters; item += platform::threads()) {
      const uint32_t peer = item / kExpertGreeters, number = item - peer * kExpertGreeters;
      const uint32_t teller = several_ && number < platform::blocks() ? number : 0;
      if (teller != platform::block()) continue;
      uint32_t* const there = greeting_of(peer, args_.rank, number);
      if (wrong && number == platform::block()) {
        platform::store_release(there, greeting | kWrong);
      } else {
        platform::store_release_prior(there, greeting);
      }
    }
  }

  /// An end flag that no call writes for 2^31 calls would look like a later one, so each call updates one flag of each
  /// rank. Peers write such a flag in the next call at the earliest: after the first block has raised its own end flag,
  /// which follows this function.
  SYMMETRA_DEVICE void refresh() const {
    const uint32_t block = epoch_ % kMaxBlocks;
    for (uint32_t peer = platform::thread(); peer < args_.world; peer += platform::threads()) {
      if (block >= blocks_of(peer)) platform::store_relaxed(flag(args_.rank, peer, block), epoch_ + 1);
    }
  }

  const ExpertArgs& args_;
  uint32_t epoch_;
  device::Waiter waiter_;
  uint32_t* greetings_;   ///< start flags of all ranks, in block-shared memory
  bool several_ = false;  ///< several blocks send start flags
  bool greets_ = false;
  bool wrong_ = false;
};

}  // namespace symmetra::kernels
