// Signals between ranks from inside a kernel. A signal is a counter in the receiver's pad that only grows. Both ends
// keep their own count in their own memory, so a graph replays and nothing is ever reset.
//
// `Pad` is a SignalPad, or any type with its members. On one channel and between one pair of ranks, only one thread at
// a time may put, and only one may wait, because the counters are plain memory. Counts wrap: at most 2^31 signals may
// be put and not yet awaited.
#pragma once
#include "symmetra/device/numbers.hpp"
#include "symmetra/device/wait.cuh"

namespace symmetra::device {

/// Signals `peer` on `channel`. Called by one thread. A thread that waits for the signal sees this thread's earlier
/// writes, the writes of other threads of the block before a sync_block that precedes the call, and all earlier work of
/// the kernel's stream. A rank that has given up sends no signal, because its data cannot be trusted.
template <class Pad>
SYMMETRA_DEVICE void put(const Pad& pad, Rank peer, Channel channel) {
  const uint32_t row = channel.number * pad.world;
  const uint32_t failed = platform::load_relaxed(&pad.wait.progress->failed);
  const uint32_t count = pad.sent[row + peer.number] + 1;
  if (failed != 0) return;
  pad.sent[row + peer.number] = count;
  platform::store_release(pad.pads[peer.number] + row + pad.rank, count);
}

/// Waits for one more signal of `peer` on `channel`. Called by one thread; after a sync_block other threads of the
/// block see the peer's data too. Returns false when the wait gave up: the peer's data are not there, and the host
/// finds the reason in the status block.
template <class Pad>
SYMMETRA_DEVICE bool wait(const Pad& pad, Rank peer, Channel channel, uint32_t op = kernels::kOpSignalWait) {
  const uint32_t row = channel.number * pad.world;
  const uint32_t failed = platform::load_relaxed(&pad.wait.progress->failed);
  const uint32_t count = pad.awaited[row + peer.number] + 1;
  pad.awaited[row + peer.number] = count;
  const uint32_t* slot = pad.pads[pad.rank] + row + peer.number;
  Waiter waiter(pad.wait, op, count, failed != 0);
  return waiter.until(peer.number, [&] { return static_cast<int32_t>(platform::load_acquire(slot) - count) >= 0; });
}

/// A barrier of one block of every rank. Called by all threads of the block, on all ranks. Their earlier writes are
/// visible to all of them afterwards. On the host the block needs at least platform::host::kReservedSharedBytes of
/// shared memory. Returns false, on all threads alike, when the wait gave up.
template <class Pad>
SYMMETRA_DEVICE bool barrier(const Pad& pad, Channel channel, uint32_t op = kernels::kOpSignalBarrier) {
  bool met = true;
  platform::sync_block();
  for (uint32_t peer = platform::thread(); peer < pad.world; peer += platform::threads()) {
    if (peer != pad.rank) put(pad, Rank{peer}, channel);
  }
  for (uint32_t peer = platform::thread(); peer < pad.world; peer += platform::threads()) {
    if (peer != pad.rank) met &= wait(pad, Rank{peer}, channel, op);
  }
  return !platform::sync_block_or(!met);
}

}  // namespace symmetra::device
