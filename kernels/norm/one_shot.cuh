// One-shot all-reduce and norm: every rank sends all its rows to every peer, and reduces and norms all rows. In the region
// and epochs of the one-shot all-reduce. A block takes a row, and then the row that is as many rows further as there are
// blocks; a lane takes packets of the row in ascending order, so that it owns the columns of its packets.
#pragma once
#include "kernels/norm/epilogue.cuh"
#include "kernels/norm/stage.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

template <class Element, uint32_t kWorld, bool kQuantised>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_one_shot(SYMMETRA_ARGS(FusedNormArgs) args) {
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, kQuantised>;
  const AllReduceArgs& sum = args.sum;
  const NormArgs& norm = args.norm;
  const uint32_t world = world_of<kWorld>(sum.world), lanes_log2 = sum.lanes_log2, lanes = 1u << lanes_log2, rank = sum.rank;
  const uint32_t rows = static_cast<uint32_t>(norm.rows), packets = packets_of<Element>(norm.hidden);
  const Reduction reduction{kSum, world};
  const NormShared shared(world << lanes_log2, packets);
  const Columns columns(shared.columns, packets, Operands::wants_largest(norm) ? shared.largest : nullptr);

  platform::wait_prior();
  const Call call = begin_call(sum.state, sum.wait);
  const platform::Items pairs(world << lanes_log2, [&](uint32_t t) { return make_pair(sum, t, world); });
  const Scratch<Protocol, 1> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);

  for (uint32_t number = platform::block(); number < rows; number += platform::blocks()) {
    const Row<Element> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    for (uint32_t tile = 0; tile < packets; tile += lanes) {
      pairs.each([&](const Pair& pair) {
        const uint32_t packet = tile + pair.lane;
        if (pair.peer == rank || packet >= packets) return;
        if (!waiter.gave_up()) scratch.send(0, pair, number * packets + tile, Protocol::sendable(row.load(packet)));
        scratch.clear(0, pair, number * packets + tile);
      });
    }
  }
  platform::sync_block();  // also in a block without rows, before the state advances
  for (uint32_t number = platform::block(); number < rows; number += platform::blocks()) {
    const Row<Element> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    const Operands epilogue(norm, number);
    const Stage stage(shared.stage, sum, number * packets, packets);
    for (uint32_t tile = 0; tile < packets; tile += lanes) {
      pairs.each([&](const Pair& pair) {
        const uint32_t packet = tile + pair.lane;
        if (packet >= packets) return;
        shared.arrived[pair.place] =
            pair.peer == rank ? Protocol::sendable(row.load(packet)) : scratch.await(waiter, 0, pair, number * packets + tile);
      });
      platform::sync_block();
      platform::each(lanes, [&](uint32_t lane) {
        const uint32_t packet = tile + lane;
        if (packet >= packets) return;
        const Data x = epilogue.with_residual(packet, reduce_ranks<Element, kWorld>(shared.arrived + lane, lanes_log2, reduction));
        epilogue.keep(packet, x);
        epilogue.add(columns, packet, x);
        stage.put(packet, x);
      });
      platform::sync_block();  // all have read what arrived
    }
    const RowScale scale = epilogue.scale(columns.total());
    if (number + platform::blocks() >= rows) platform::release_next();
    epilogue.norm_row([&](uint32_t packet) { return stage.get(packet); }, scale, shared.largest);
    platform::sync_block();  // all have read the stage, the total and what is largest
  }
  scratch.clear_rest(pairs, rows * packets);
  end_call(sum.state, sum.wait, call.epoch, rows * packets);
}

}  // namespace symmetra::kernels
