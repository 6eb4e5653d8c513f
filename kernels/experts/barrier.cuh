// A barrier of a kernel of experts with the kernels of the same call on all other ranks. The grids of ranks may have other sizes,
// and the blocks of a grid need not run at once: each waits for first blocks alone.
//
// A rank's region has a greeting of each rank and flags of each rank's blocks. They are counters that only grow, a step a call.
#pragma once
#include "kernels/call.cuh"

namespace symmetra::kernels {

class GridBarrier {
 public:
  /// `words`: of block-shared memory, one for each rank.
  SYMMETRA_DEVICE GridBarrier(const ExpertArgs& args, const Call& call, uint32_t* words)
      : args_(args), epoch_(call.epoch), waiter_(args.wait, args.op, call.epoch, call.poisoned != 0), greetings_(words) {}

  /// Tells all ranks that this one has begun the call: the first block does. What a kernel does before it needs peers comes between
  /// this and `enter`. `wrong`: the rank has found something wrong, and has written what; equal on all threads of the block.
  SYMMETRA_DEVICE void greet(bool wrong = false) {
    greets_ = platform::block() == 0 && !waiter_.gave_up();
    if (greets_) tell(epoch_ + 1, wrong);
  }

  /// Returns true when all ranks have begun this call: their inputs may be read and their outputs written. Returns false on all
  /// threads when the wait gave up. Then the first block takes back the greeting, so that a late rank does not touch memory whose
  /// owner was told of the failure.
  SYMMETRA_DEVICE bool enter() {
    for (uint32_t peer = platform::thread(); peer < args_.world; peer += platform::threads()) {
      uint32_t greeting = 0;
      waiter_.until(peer, [&] {
        greeting = platform::load_acquire(greeting_of(args_.rank, peer));
        return static_cast<int32_t>((greeting & ~kGreetingMask) - ((epoch_ + 1) << kGreetingBits)) >= 0;
      });
      greetings_[peer] = greeting;
    }
    if (!platform::sync_block_or(waiter_.gave_up())) return true;
    if (greets_) tell(epoch_, false);
    return false;
  }

  /// Behind `enter`: whether a rank has found something wrong.
  SYMMETRA_DEVICE bool is_wrong(uint32_t rank) const { return (greetings_[rank] & kWrong) != 0; }
  SYMMETRA_DEVICE bool is_wrong() const {
    bool any = false;
    SYMMETRA_ROLLED
    for (uint32_t rank = 0; rank < args_.world; ++rank) any |= is_wrong(rank);
    return any;
  }

  /// Behind the block's last access to a peer: says that the block is done. The first block waits until all blocks of all ranks are.
  /// What they wrote here is visible when all blocks of the kernel have ended, and what they read may change. `wrote`: whether the
  /// kernel writes what peers read.
  SYMMETRA_DEVICE void leave(bool wrote) {
    const uint32_t block = platform::block(), threads = platform::threads();
    if (block == 0) refresh();
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
  SYMMETRA_DEVICE uint32_t* greeting_of(uint32_t rank, uint32_t source) const { return reinterpret_cast<uint32_t*>(area(rank)) + source; }
  SYMMETRA_DEVICE uint32_t* flag(uint32_t rank, uint32_t source, uint32_t block) const {
    return reinterpret_cast<uint32_t*>(area(rank) + kExpertGreetingBytes) + source * kMaxBlocks + block;
  }
  /// Steps of consecutive calls follow each other; where epochs wrap, they skip a few.
  SYMMETRA_DEVICE bool has_come(uint32_t step) const { return static_cast<int32_t>(step - (epoch_ + 1)) >= 0; }

  /// A greeting says in its lower bits how many blocks will raise a flag, and whether something is wrong, so that all arrives at once.
  static constexpr uint32_t kGreetingBits = 10, kGreetingMask = (1u << kGreetingBits) - 1, kWrong = 1u << 9;
  static_assert(kMaxBlocks < kWrong);

  SYMMETRA_DEVICE uint32_t blocks_of(uint32_t peer) const { return peer == args_.rank ? 0 : greetings_[peer] & (kWrong - 1); }

  SYMMETRA_DEVICE void tell(uint32_t step, bool wrong) const {
    for (uint32_t peer = platform::thread(); peer < args_.world; peer += platform::threads()) {
      const uint32_t greeting = step << kGreetingBits | (wrong ? kWrong : 0) | platform::blocks();
      if (wrong) {
        platform::store_release(greeting_of(peer, args_.rank), greeting);
      } else {
        platform::store_release_prior(greeting_of(peer, args_.rank), greeting);
      }
    }
  }

  /// Flags of blocks that no call uses for 2^31 calls would look like flags of the future, so each call updates one of each rank.
  /// Peers write such a flag in the next call at the earliest, after the first block has raised its own, which it does after this.
  SYMMETRA_DEVICE void refresh() const {
    const uint32_t block = epoch_ % kMaxBlocks;
    for (uint32_t peer = platform::thread(); peer < args_.world; peer += platform::threads()) {
      if (block >= blocks_of(peer)) platform::store_relaxed(flag(args_.rank, peer, block), epoch_ + 1);
    }
  }

  const ExpertArgs& args_;
  uint32_t epoch_;
  device::Waiter waiter_;
  uint32_t* greetings_;  ///< of all ranks, in the block's memory
  bool greets_ = false;
};

}  // namespace symmetra::kernels
