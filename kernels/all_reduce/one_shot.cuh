// All-reduce in one hop: every rank sends all it has to every peer and sums what it
// gets. For small messages. One thread a packet and peer, so that all sends and all
// polls are independent.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) one_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2, lanes = 1u << lanes_log2;
  const uint32_t step = platform::blocks() << lanes_log2;
  const Call call = begin_call(args.state, args.wait);
  const Scratch<Protocol, 1> scratch(args, world, call);
  const Operand<typename Protocol::Element, Data> operand(args);
  device::Waiter waiter(args.wait, kOpAllReduce, call.epoch, call.poisoned);
  Data* arrived = platform::shared<Data>();

  for (uint32_t first = platform::block() << lanes_log2;; first += step) {
    for (uint32_t t = platform::thread(); t < world << lanes_log2; t += platform::threads()) {
      const uint32_t peer = t >> lanes_log2, i = first + (t & (lanes - 1));
      if (i >= operand.packets()) continue;
      Data data = Protocol::sendable(operand.load(i));
      if (peer != args.rank) {
        if (!waiter.gave_up()) scratch.send(0, peer, i, data);
        scratch.clear(0, peer, i);
        data = scratch.await(waiter, 0, peer, i);
      }
      arrived[t] = data;
    }
    platform::sync_block();
    const bool last = first + step >= operand.packets();
    if (last) platform::release_next();
    for (uint32_t lane = platform::thread(); lane < lanes; lane += platform::threads()) {
      if (first + lane >= operand.packets()) continue;
      operand.store(first + lane, sum_ranks<typename Protocol::Element, kWorld>(arrived + lane, lanes_log2, world));
    }
    if (last) break;
    platform::sync_block();  // all have read what arrived
  }
  scratch.clear_rest(operand.packets(), lanes_log2);
  scratch.scrub([&](uint32_t, uint32_t) { return operand.packets(); });
  end_call(args.state, args.wait, call.epoch, operand.packets());
}

}  // namespace symmetra::kernels
