// One operation on a signal pad, which the host enqueues on a stream. One block.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/signal.cuh"

namespace symmetra::kernels {

/// Waits for the word that a stream of `peer` stores in this rank's pad, and clears the word for the next time. The pad has no counts
/// then. Called by one thread.
SYMMETRA_DEVICE void take(const SignalArgs& args, uint32_t peer) {
  uint32_t* word = args.pads[args.rank] + args.channel * args.world + peer;
  device::Waiter waiter(args.wait, args.op, 1, platform::load_relaxed(&args.wait.progress->failed) != 0);
  if (waiter.until(peer, [&] { return platform::load_acquire(word) != 0; })) platform::store_relaxed(word, 0U);
}

SYMMETRA_KERNEL void signal(SYMMETRA_ARGS(SignalArgs) args) {
  platform::wait_prior();
  const bool first = platform::thread() == 0;
  if (args.action == kSignalBarrier) {
    device::barrier(args, device::Channel{args.channel}, args.op);
  } else if (first && args.action == kSignalPut) {
    device::put(args, device::Rank{args.peer}, device::Channel{args.channel});
  } else if (first && args.action == kSignalWait) {
    device::wait(args, device::Rank{args.peer}, device::Channel{args.channel});
  } else if (args.action == kSignalTake) {
    for (uint32_t peer = platform::thread(); peer < args.world; peer += platform::threads()) {
      if ((args.peer >> peer & 1) != 0) take(args, peer);
    }
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
