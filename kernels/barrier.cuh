// A barrier of one block with its twins: the blocks of equal index on all other ranks. Flags are [block][source] in
// every rank's region; they are counters that only grow, two steps per call.
#pragma once
#include "kernels/call.cuh"

namespace symmetra::kernels {

/// How a block raises its flag on every other rank: by a store to each. A full release orders what the block wrote.
struct EachFlag {
  template <class Args>
  SYMMETRA_DEVICE static void raise(const Args& args, uint32_t world, uint32_t flag, uint32_t count, bool full) {
    for (uint32_t peer = platform::thread(); peer < world; peer += platform::threads()) {
      if (peer == args.rank) continue;
      uint32_t* theirs = reinterpret_cast<uint32_t*>(args.peers[peer]) + flag;
      if (full) {
        platform::store_release(theirs, count);
      } else {
        platform::store_release_prior(theirs, count);
      }
    }
  }
};

template <class Args, class Flags = EachFlag>
class BlockBarrier {
 public:
  SYMMETRA_DEVICE BlockBarrier(const Args& args, uint32_t world, const Call& call, uint32_t op = kOpAllReduce)
      : args_(args), world_(world), epoch_(call.epoch), waiter_(args.wait, op, call.epoch, call.poisoned != 0) {}

  /// Returns true when all twins have begun this call: their inputs may be read and their outputs written. Returns
  /// false on all threads when the wait gave up. In that case this block withdraws its flag, so that a late rank does
  /// not access memory whose owner has reported a failure.
  SYMMETRA_DEVICE bool enter() {
    const bool announced = !waiter_.gave_up();
    if (meet(kEnter)) return true;
    if (announced) signal(kBack);
    return false;
  }

  /// Waits until all twins are done. When all blocks of the kernel have ended, the writes of the twins to this rank are
  /// visible, and memory that they read may change.
  SYMMETRA_DEVICE void leave() {
    refresh();
    platform::sync_block();  // orders what the block wrote before the flags
    meet(kLeave);
  }

  /// A flag that no call writes for 2^30 calls would look like a later one, so each call updates one unused row. Peers
  /// write that row in the next call at the earliest, after block 0 has left this call or sent data that all ranks wait
  /// for, and block 0 does either only after this update.
  SYMMETRA_DEVICE void refresh() const {
    const uint32_t row = epoch_ % kMaxBlocks;
    if (platform::block() != 0 || row < platform::blocks()) return;
    for (uint32_t source = platform::thread(); source < world_; source += platform::threads()) {
      platform::store_relaxed(flag(args_.rank, row, source), count(kEnter));
    }
  }

 private:
  /// Steps of a call: not arrived or withdrawn; arrived; done.
  static constexpr uint32_t kBack = 0, kEnter = 1, kLeave = 2;

  SYMMETRA_DEVICE uint32_t* flag(uint32_t rank, uint32_t block, uint32_t source) const {
    return reinterpret_cast<uint32_t*>(args_.peers[rank]) + block * kMaxWorld + source;
  }
  /// Steps of consecutive calls follow each other; where epochs wrap, they skip at most 9.
  SYMMETRA_DEVICE uint32_t count(uint32_t step) const { return 2 * epoch_ + step; }

  SYMMETRA_DEVICE void signal(uint32_t step) const {
    Flags::raise(args_, world_, platform::block() * kMaxWorld + args_.rank, count(step), step == kLeave);
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

  const Args& args_;
  uint32_t world_;
  uint32_t epoch_;
  device::Waiter waiter_;
};

}  // namespace symmetra::kernels
