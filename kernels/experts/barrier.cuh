// A barrier of a kernel of experts with the kernels of the same call on all other ranks. The grids of ranks may have other sizes,
// and the blocks of a grid need not run at once, but for a few first ones: each waits for these alone.
//
// A rank's region has greetings of each rank and flags of each rank's blocks. They are counters that only grow, a step a call. Behind the
// greetings lies what the own greeting blocks have found wrong, which peers read there.
#pragma once
#include "kernels/experts/turns.cuh"

namespace symmetra::kernels {

class GridBarrier {
 public:
  /// `words`: of block-shared memory, one for each rank.
  SYMMETRA_DEVICE GridBarrier(const ExpertArgs& args, const Call& call, uint32_t* words)
      : args_(args), epoch_(call.epoch), waiter_(args.wait, args.op, call.epoch, call.poisoned != 0), greetings_(words) {}

  /// How many blocks greet, at most: some of the first, which a GPU runs at once.
  SYMMETRA_DEVICE static uint32_t greeters() { return platform::blocks() < kExpertGreeters ? platform::blocks() : kExpertGreeters; }

  /// Tells all ranks that this one has begun the call. What a kernel does before it needs peers comes between this and `enter`.
  /// All blocks call it. `several`: in this kernel greeters say that they have found nothing wrong; else the first block greets for
  /// all. `wrong`: this one has, and has written what; equal on all threads of the block.
  SYMMETRA_DEVICE void greet(bool several = false, bool wrong = false) {
    several_ = several;
    greets_ = platform::block() < (several ? greeters() : 1) && !waiter_.gave_up();
    if (greets_) tell(epoch_ + 1, wrong);
  }

  /// Returns true when all ranks have begun this call: their inputs may be read and their outputs written. Returns false on all
  /// threads when the wait gave up. Then the first block takes back its greeting, so that a late rank does not touch memory whose owner
  /// was told of the failure. Other greeters leave theirs: what they say is wrong is read behind the barrier.
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

  /// Behind `enter`: whether a rank has found something wrong.
  SYMMETRA_DEVICE bool is_wrong() const { return wrong_; }
  /// The first greeter of a rank that has; kExpertGreeters: none.
  SYMMETRA_DEVICE uint32_t wrong_greeter(uint32_t rank) const {
    if ((greetings_[rank] & kWrong) != 0) return 0;
    uint32_t number = 1;
    while (number < kExpertGreeters && (platform::load_relaxed(greeting_of(args_.rank, rank, number)) & kWrong) == 0) ++number;
    return number;
  }
  /// What a greeter of a rank has found wrong, in the memory of that rank.
  SYMMETRA_DEVICE ExpertHead* verdict(uint32_t rank, uint32_t greeter) const {
    return reinterpret_cast<ExpertHead*>(area(rank) + kExpertGreetingBytes) + greeter;
  }

  /// Behind the block's last access to a peer: says that the block is done. The first block waits until all blocks of all ranks are.
  /// What they wrote here is visible when all blocks of the kernel have ended, and what they read may change. `wrote`: whether the
  /// kernel writes what peers read.
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
  /// Steps of consecutive calls follow each other; where epochs wrap, they skip a few.
  SYMMETRA_DEVICE bool has_come(uint32_t step) const { return static_cast<int32_t>(step - (epoch_ + 1)) >= 0; }

  /// A greeting says in its lower bits how many blocks will raise a flag, and whether something is wrong, so that all arrives at once.
  static constexpr uint32_t kGreetingBits = 10, kGreetingMask = (1u << kGreetingBits) - 1, kWrong = 1u << 9;
  static_assert(kMaxBlocks < kWrong);

  SYMMETRA_DEVICE uint32_t blocks_of(uint32_t peer) const { return peer == args_.rank ? 0 : greetings_[peer] & (kWrong - 1); }

  /// Tells all ranks the greeting of this block; the first one also those of greeters that there are not. All greetings are told in
  /// each call, so that none of long ago looks like one of the future.
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
  uint32_t* greetings_;   ///< of all ranks, in the block's memory
  bool several_ = false;  ///< greeters say something
  bool greets_ = false;
  bool wrong_ = false;
};

}  // namespace symmetra::kernels
