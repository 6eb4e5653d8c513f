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
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2, lanes = 1u << lanes_log2, rank = args.rank;
  const uint32_t pairs = world << lanes_log2, first = platform::block() << lanes_log2, step = platform::blocks() << lanes_log2;
  const Operand<typename Protocol::Element, Data> operand(args);
  const Shares shares(operand.packets(), world);
  Data* arrived = platform::shared<Data>();

  platform::wait_prior();
  const uint32_t owner = platform::thread() >> lanes_log2, packet = first + (platform::thread() & (lanes - 1));
  const Data ahead = owner < world && shares.has(owner, packet) ? operand.load(shares.first(owner) + packet) : Data{};
  const auto load = [&](uint32_t tile, uint32_t t) {
    const bool loaded = tile == first && t == platform::thread();
    return Protocol::sendable(loaded ? ahead : operand.load(shares.first(t >> lanes_log2) + tile + (t & (lanes - 1))));
  };
  const Call call = begin_call(args.state, args.wait);
  const Scratch<Protocol, 2> scratch(args, world, call);
  device::Waiter waiter(args.wait, kOpAllReduce, call.epoch, call.poisoned);

  for (uint32_t tile = first; tile < shares.size; tile += step) {
    platform::each(pairs, [&](uint32_t t) {
      const uint32_t peer = t >> lanes_log2, i = tile + (t & (lanes - 1));
      if (peer == rank) return;
      if (shares.has(peer, i) && !waiter.gave_up()) scratch.send(0, peer, i, load(tile, t));
      scratch.clear(0, peer, i);
      scratch.clear(1, peer, i);
    });
  }
  bool failed = false;
  for (uint32_t tile = first;; platform::sync_block()) {  // all have read what arrived
    platform::each(pairs, [&](uint32_t t) {
      const uint32_t peer = t >> lanes_log2, i = tile + (t & (lanes - 1));
      if (shares.has(rank, i)) arrived[t] = peer == rank ? load(tile, t) : scratch.await(waiter, 0, peer, i);
    });
    // Whoever lacks a packet has no sum: then nobody of the block sends one.
    failed |= platform::sync_block_or(waiter.gave_up());
    platform::each(pairs, [&](uint32_t t) {
      const uint32_t peer = t >> lanes_log2, lane = t & (lanes - 1), i = tile + lane;
      if (!shares.has(rank, i)) return;
      const Data sum = sum_ranks<typename Protocol::Element, kWorld>(arrived + lane, lanes_log2, world);
      if (peer == rank) {
        operand.store(shares.first(rank) + i, sum);
      } else if (!failed) {
        scratch.send(1, peer, i, sum);
      }
    });
    tile += step;
    if (tile >= shares.size) break;
  }
  for (uint32_t tile = first; tile < shares.size; tile += step) {
    platform::each(pairs, [&](uint32_t t) {
      const uint32_t peer = t >> lanes_log2, i = tile + (t & (lanes - 1));
      if (peer != rank && shares.has(peer, i)) operand.store(shares.first(peer) + i, scratch.await(waiter, 1, peer, i));
    });
  }
  platform::release_next();
  scratch.clear_rest(shares.size, lanes_log2);
  scratch.scrub([&](uint32_t hop, uint32_t source) { return shares.of(hop == 0 ? rank : source); });
  end_call(args.state, args.wait, call.epoch, shares.size);
}

}  // namespace symmetra::kernels
