// Signals between ranks from inside a kernel. A signal is a count that only grows,
// in the receiver's pad; both ends keep their own count in their own memory, so a
// graph replays and nothing is ever reset.
//
// `Pad` is a SignalPad, or anything with its members. On one channel and between one
// pair of ranks, puts come from one thread at a time, and so do waits; the counters
// are plain memory. Counts wrap: at most 2^31 signals may be put and not yet awaited.
#pragma once
#include "symmetra/device/wait.cuh"

namespace symmetra::device {

/// Signals `peer` on `channel`. Called by one thread. What this thread wrote before, and
/// what others of its block wrote before a sync_block that precedes the call, is visible
/// to whoever awaits the signal; so is all that came before the kernel on its stream.
/// A rank that has given up signals nobody: its data cannot be trusted.
template <class Pad>
SYMMETRA_DEVICE void put(const Pad& pad, uint32_t channel, uint32_t peer) {
  const uint32_t row = channel * kMaxWorld;
  const uint32_t failed = platform::load_relaxed(&pad.wait.progress->failed);
  const uint32_t count = pad.sent[row + peer] + 1;
  if (failed != 0) return;
  pad.sent[row + peer] = count;
  platform::store_release(pad.pads[peer] + row + pad.rank, count);
}

/// Waits for one more signal of `peer` on `channel`. Called by one thread; others of its
/// block see what it waited for after a sync_block. False: gave up, the peer's data are
/// not there, and the host finds the reason in the status block.
template <class Pad>
SYMMETRA_DEVICE bool wait(const Pad& pad, uint32_t channel, uint32_t peer, uint32_t op = kernels::kOpSignalWait) {
  const uint32_t row = channel * kMaxWorld;
  const uint32_t failed = platform::load_relaxed(&pad.wait.progress->failed);
  const uint32_t count = pad.awaited[row + peer] + 1;
  pad.awaited[row + peer] = count;
  const uint32_t* slot = pad.pads[pad.rank] + row + peer;
  Waiter waiter(pad.wait, op, count, failed != 0);
  return waiter.until(peer, [&] { return static_cast<int32_t>(platform::load_acquire(slot) - count) >= 0; });
}

/// A barrier of one block of every rank. Called by all threads of the block, by all ranks:
/// what they wrote before is visible to all after. On the host the block's shared memory
/// has platform::host::kReservedSharedBytes at least. False, for all threads alike: gave up.
template <class Pad>
SYMMETRA_DEVICE bool barrier(const Pad& pad, uint32_t channel, uint32_t op = kernels::kOpSignalBarrier) {
  bool met = true;
  platform::sync_block();
  for (uint32_t peer = platform::thread(); peer < pad.world; peer += platform::threads()) {
    if (peer != pad.rank) put(pad, channel, peer);
  }
  for (uint32_t peer = platform::thread(); peer < pad.world; peer += platform::threads()) {
    if (peer != pad.rank) met &= wait(pad, channel, peer, op);
  }
  return !platform::sync_block_or(!met);
}

}  // namespace symmetra::device
