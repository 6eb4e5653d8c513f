// Two-shot all-reduce, both hops pushed: all ranks send a share of the packets to the rank that reduces it, and that
// rank sends the result to all. No barriers. For middle sizes.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) two_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2, lanes = 1u << lanes_log2, rank = args.rank;
  const uint32_t first = platform::block() << lanes_log2;
  uint32_t step = platform::blocks() << lanes_log2;
  const Operand<typename Protocol::Element, Data> operand(args);
  const Reduction reduction{args.reduction, world};
  const Shares shares(operand.packets(), world);
  Data* arrived = platform::shared<Data>();

  platform::wait_prior();
  Call call = begin_call(args.state, args.wait);
  const uint32_t owner = peer_of(platform::thread(), lanes_log2, rank, world), packet = first + (platform::thread() & (lanes - 1));
  const Data ahead = owner < world && packet < shares.size ? operand.load(shares.first(owner) + packet) : Data{};
  const platform::Items pairs(world << lanes_log2, [&](uint32_t t) { return make_pair(args, t, world); });
  platform::keep(step);
  platform::keep(call.epoch);
  const auto load = [&](uint32_t tile, const Pair& pair) {
    const bool loaded = tile == first && pair.index == platform::thread();
    return Protocol::sendable(loaded ? ahead : operand.load(shares.first(pair.peer) + tile + pair.lane));
  };
  const Scratch<Protocol, 2> scratch(args, world, call);
  device::Waiter waiter(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0);

  for (uint32_t tile = first; tile < shares.size; tile += step) {
    pairs.each([&](const Pair& pair) {
      if (shares.has(pair.peer, tile + pair.lane)) {
        if (pair.peer == rank) {
          if (tile == first) arrived[pair.place] = load(tile, pair);
        } else if (!waiter.gave_up()) {
          scratch.send(0, pair, tile, load(tile, pair));
        }
      }
      if (pair.peer == rank) return;
      scratch.clear(0, pair, tile);
      scratch.clear(1, pair, tile);
    });
  }
  bool failed = false;
  for (uint32_t tile = first;; platform::sync_block()) {  // all threads have read the arrived packets
    pairs.each([&](const Pair& pair) {
      if (!shares.has(rank, tile + pair.lane)) return;
      if (pair.peer != rank) {
        arrived[pair.place] = scratch.await(waiter, 0, pair, tile);
      } else if (tile != first) {
        arrived[pair.place] = load(tile, pair);
      }
    });
    // A thread without a packet has no result, so the whole block sends nothing.
    failed |= platform::sync_block_or(waiter.gave_up());
    pairs.each([&](const Pair& pair) {
      if (!shares.has(rank, tile + pair.lane)) return;
      const Data result = reduce_ranks<typename Protocol::Element, kWorld>(arrived + pair.lane, lanes_log2, reduction);
      if (pair.peer == rank) {
        operand.store(shares.first(rank) + tile + pair.lane, result);
      } else if (!failed) {
        scratch.send(1, pair, tile, result);
      }
    });
    tile += step;
    if (tile >= shares.size) break;
  }
  for (uint32_t tile = first; tile < shares.size; tile += step) {
    pairs.each([&](const Pair& pair) {
      const uint32_t i = tile + pair.lane;
      if (pair.peer != rank && shares.has(pair.peer, i)) operand.store(shares.first(pair.peer) + i, scratch.await(waiter, 1, pair, tile));
    });
  }
  platform::release_next();
  scratch.clear_rest(pairs, shares.size);
  scratch.scrub([&](uint32_t hop, uint32_t source) { return shares.of(hop == 0 ? rank : source); });
  end_call(args.state, args.wait, call.epoch, shares.size);
}

}  // namespace symmetra::kernels
