// A barrier of one block with its twins, the same block of every other rank. Flags are
// [block][source] in the region of every rank, counts that only grow, two a call.
#pragma once
#include "kernels/call.cuh"

namespace symmetra::kernels {

template <class Args>
class BlockBarrier {
 public:
  SYMMETRA_DEVICE BlockBarrier(const Args& args, uint32_t world, const Call& call, uint32_t op = kOpAllReduce)
      : args_(args), world_(world), epoch_(call.epoch), waiter_(args.wait, op, call.epoch, call.poisoned != 0) {}

  /// All twins have begun this call: their inputs may be read, their outputs written. False,
  /// for all threads alike: gave up; then this block takes back the arrival it announced, so
  /// that a rank that comes late does not touch memory whose owner has been told of the failure.
  SYMMETRA_DEVICE bool enter() {
    const bool announced = !waiter_.gave_up();
    if (meet(kEnter)) return true;
    if (announced) signal(kBack);
    return false;
  }

  /// All twins have done what they had to: what they wrote here is visible when all blocks
  /// of the kernel have ended, and what they read may change.
  SYMMETRA_DEVICE void leave() {
    refresh();
    platform::sync_block();  // orders what the block wrote before the flags
    meet(kLeave);
  }

 private:
  /// Steps of a call: not yet, or no longer, here; here; done.
  static constexpr uint32_t kBack = 0, kEnter = 1, kLeave = 2;

  SYMMETRA_DEVICE uint32_t* flag(uint32_t rank, uint32_t block, uint32_t source) const {
    return reinterpret_cast<uint32_t*>(args_.peers[rank]) + block * kMaxWorld + source;
  }
  /// Wraps evenly: a call's steps follow those of the call before, or lie up to 9 beyond.
  SYMMETRA_DEVICE uint32_t count(uint32_t step) const { return 2 * epoch_ + step; }

  SYMMETRA_DEVICE void signal(uint32_t step) const {
    for (uint32_t peer = platform::thread(); peer < world_; peer += platform::threads()) {
      if (peer == args_.rank) continue;
      uint32_t* theirs = flag(peer, platform::block(), args_.rank);
      if (step == kLeave) {
        platform::store_release(theirs, count(step));
      } else {
        platform::store_release_prior(theirs, count(step));
      }
    }
  }

  SYMMETRA_DEVICE bool meet(uint32_t step) {
    if (!waiter_.gave_up()) signal(step);
    for (uint32_t peer = platform::thread(); peer < world_; peer += platform::threads()) {
      if (peer == args_.rank) continue;
      const uint32_t* mine = flag(args_.rank, platform::block(), peer);
      waiter_.until(peer, [&] { return static_cast<int32_t>(platform::load_acquire(mine) - count(step)) >= 0; });
    }
    return !platform::sync_block_or(waiter_.gave_up());
  }

  /// Flags of blocks that no call uses for 2^30 calls would look like flags of the future. So
  /// each call brings one unused row up to date. Peers write that row in the next call at the
  /// earliest, when they have seen block 0 leave this one, and it leaves after this.
  SYMMETRA_DEVICE void refresh() const {
    const uint32_t row = epoch_ % kMaxBlocks;
    if (platform::block() != 0 || row < platform::blocks()) return;
    for (uint32_t source = platform::thread(); source < world_; source += platform::threads()) {
      platform::store_relaxed(flag(args_.rank, row, source), count(kEnter));
    }
  }

  const Args& args_;
  uint32_t world_;
  uint32_t epoch_;
  device::Waiter waiter_;
};

}  // namespace symmetra::kernels
