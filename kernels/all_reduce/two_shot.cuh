// All-reduce in two hops, both pushed: every rank sums one share of the packets, which
// all send it, and sends the sum to all. No barrier anywhere. For middle sizes.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) two_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2, lanes = 1u << lanes_log2;
  const uint32_t step = platform::blocks() << lanes_log2, rank = args.rank;
  const Call call = begin_call(args.state, args.wait);
  const Scratch<Protocol, 2> scratch(args, world, call);
  const Operand<typename Protocol::Element, Data> operand(args);
  const Shares shares(operand.packets(), world);
  device::Waiter waiter(args.wait, kOpAllReduce, call.epoch, call.poisoned);
  Data* arrived = platform::shared<Data>();

  for (uint32_t first = platform::block() << lanes_log2;; first += step) {
    for (uint32_t t = platform::thread(); t < world << lanes_log2; t += platform::threads()) {
      const uint32_t peer = t >> lanes_log2, i = first + (t & (lanes - 1));
      Data data{};
      if (shares.has(peer, i)) {
        data = Protocol::sendable(operand.load(shares.first(peer) + i));
        if (peer != rank && !waiter.gave_up()) scratch.send(0, peer, i, data);
      }
      if (peer != rank && i < shares.size) scratch.clear(0, peer, i);
      if (peer != rank && shares.has(rank, i)) data = scratch.await(waiter, 0, peer, i);
      arrived[t] = data;
    }
    // Whoever lacks a packet has no sum: then nobody of the block sends one.
    const bool failed = platform::sync_block_or(waiter.gave_up());
    for (uint32_t t = platform::thread(); t < world << lanes_log2; t += platform::threads()) {
      const uint32_t peer = t >> lanes_log2, lane = t & (lanes - 1), i = first + lane;
      Data data{};
      if (shares.has(rank, i)) {
        data = sum_ranks<typename Protocol::Element, kWorld>(arrived + lane, lanes_log2, world);
        if (peer != rank && !failed) scratch.send(1, peer, i, data);
      }
      if (peer != rank && i < shares.size) scratch.clear(1, peer, i);
      if (shares.has(peer, i)) {
        if (peer != rank) data = scratch.await(waiter, 1, peer, i);
        operand.store(shares.first(peer) + i, data);
      }
    }
    if (first + step >= shares.size) break;
    platform::sync_block();  // all have read what arrived
  }
  platform::release_next();
  scratch.clear_rest(shares.size, lanes_log2);
  scratch.scrub([&](uint32_t hop, uint32_t source) { return shares.of(hop == 0 ? rank : source); });
  end_call(args.state, args.wait, call.epoch, shares.size);
}

}  // namespace symmetra::kernels
