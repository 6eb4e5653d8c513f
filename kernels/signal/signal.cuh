// One operation on a signal pad, which the host enqueues on a stream. One block.
#pragma once
#include "kernels/args.hpp"
#include "symmetra/device/signal.cuh"

namespace symmetra::kernels {

SYMMETRA_KERNEL void signal(SYMMETRA_ARGS(SignalArgs) args) {
  platform::wait_prior();
  const bool first = platform::thread() == 0;
  if (args.action == kSignalBarrier) {
    device::barrier(args, args.channel, args.op);
  } else if (first && args.action == kSignalPut) {
    device::put(args, args.channel, args.peer);
  } else if (first && args.action == kSignalWait) {
    device::wait(args, args.channel, args.peer);
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
