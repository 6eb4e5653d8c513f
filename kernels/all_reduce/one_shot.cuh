// One-shot all-reduce: every rank sends its whole message to every peer and reduces what it receives. For small
// messages. One thread per packet and peer, so that all sends and all polls are independent.
#pragma once
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) one_shot(SYMMETRA_ARGS(AllReduceArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2, lanes = 1u << lanes_log2, rank = args.rank;
  const uint32_t first = platform::block() << lanes_log2;
  uint32_t step = platform::blocks() << lanes_log2;
  const Operand<typename Protocol::Element, Data> operand(args);
  const Reduction reduction{args.reduction, world};
  uint32_t packets = operand.packets();
  Data* arrived = platform::shared<Data>();

  platform::wait_prior();
  Call call = begin_call(args.state, args.wait);
  const Data ahead = operand.load(first + (platform::thread() & (lanes - 1)));
  const platform::Items pairs(world << lanes_log2, [&](uint32_t t) { return make_pair(args, t, world); });
  platform::keep(step);
  platform::keep(packets);
  platform::keep(call.epoch);
  const auto load = [&](uint32_t tile, const Pair& pair) {
    const bool loaded = tile == first && pair.index == platform::thread();
    return Protocol::sendable(loaded ? ahead : operand.load(tile + pair.lane));
  };
  const Scratch<Protocol, 1> scratch(args, world, call);
  device::Waiter waiter(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0);

  for (uint32_t tile = first; tile < packets; tile += step) {
    pairs.each([&](const Pair& pair) {
      if (pair.peer == rank || tile + pair.lane >= packets) return;
      if (!waiter.gave_up()) scratch.send(0, pair, tile, load(tile, pair));
      scratch.clear(0, pair, tile);
    });
  }
  for (uint32_t tile = first;; platform::sync_block()) {  // all threads have read the arrived packets
    pairs.each([&](const Pair& pair) {
      if (tile + pair.lane >= packets) return;
      arrived[pair.place] = pair.peer == rank ? load(tile, pair) : scratch.await(waiter, 0, pair, tile);
    });
    platform::sync_block();
    const bool last = tile + step >= packets;
    if (last) platform::release_next();
    platform::each(lanes, [&](uint32_t lane) {
      if (tile + lane >= packets) return;
      operand.store(tile + lane, reduce_ranks<typename Protocol::Element, kWorld>(arrived + lane, lanes_log2, reduction));
    });
    if (last) break;
    tile += step;
  }
  scratch.clear_rest(pairs, packets);
  scratch.scrub([&](uint32_t, uint32_t source) { return source == rank ? 0 : packets; });
  end_call(args.state, args.wait, call.epoch, packets);
}

}  // namespace symmetra::kernels
