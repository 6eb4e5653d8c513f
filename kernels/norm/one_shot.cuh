// One-shot all-reduce and norm: every rank sends all its rows to every peer, and reduces and norms all rows. Uses the
// region and epochs of a one-shot all-reduce. Blocks take rows in a grid-stride loop. A lane takes packets of the row
// in ascending order, so that it owns the columns of its packets. A packet always belongs to the same lane, so packets
// need no exchange between threads.
#pragma once
#include "kernels/norm/epilogue.cuh"
#include "kernels/norm/stage.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

template <class Element, uint32_t kWorld, bool kQuantised, class Args>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_one_shot(SYMMETRA_ARGS(Args) args) {
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, kQuantised, RowsOf<Args>>;
  const AllReduceArgs& sum = args.sum;
  const auto& norm = rows_of(args);
  const uint32_t world = world_of<kWorld>(sum.world), lanes = 1u << sum.lanes_log2, rank = sum.rank;
  const uint32_t rows = static_cast<uint32_t>(norm.rows), packets = packets_of<Element>(norm.hidden);
  const Reduction reduction{kSum, world};
  const NormShared shared(0, packets);
  const Columns columns(shared.columns, packets, Operands::wants_largest(norm) ? shared.largest : nullptr);
  const auto each_packet = [&](auto body) {
    platform::each(lanes, [&](uint32_t lane) {
      SYMMETRA_ROLLED
      for (uint32_t packet = lane; packet < packets; packet += lanes) body(packet);
    });
  };

  platform::wait_prior();
  const Call call = begin_call(sum.state, sum.wait);
  const Scratch<Protocol, 1> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);

  for (uint32_t number = platform::block(); number < rows; number += platform::blocks()) {
    const Row<Element> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    each_packet([&](uint32_t packet) {
      const Data data = Protocol::sendable(row.load(packet));
      SYMMETRA_UNROLL
      for (uint32_t i = 1; i < world; ++i) {  // starts at the next rank, so that ranks do not all send to the same rank
                                              // at once
        const uint32_t peer = rank + i < world ? rank + i : rank + i - world;
        if (!waiter.gave_up()) scratch.send(0, peer, number * packets + packet, data);
      }
      scratch.clear(0, number * packets + packet);
    });
  }
  if (platform::block() >= rows) platform::sync_block();  // before the state advances; other blocks sync for their rows
  for (uint32_t number = platform::block(); number < rows; number += platform::blocks()) {
    const Row<Element> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    const Operands epilogue(norm, number);
    const Stage<Protocol> stage(shared.stage, scratch.own_slot(), number * packets, packets);
    // The weights of a thread's first packet, if a lane is a thread. A kernel that quantises has no registers left for
    // them.
    typename Operands::Weights ahead{};
    constexpr bool kAhead = platform::kTeam > 1 && !kQuantised;
    const auto is_ahead = [&](uint32_t packet) { return kAhead && packet == platform::thread() && packet < lanes; };
    const auto weights = [&](uint32_t packet) { return is_ahead(packet) ? ahead : epilogue.weights(packet); };
    const auto x_of = [&](uint32_t packet) { return stage.get(packet); };
    each_packet([&](uint32_t packet) {
      // Loads that do not need peers are issued before the wait for peers.
      const Data own = Protocol::sendable(row.load(packet)), residual = epilogue.residual(packet);
      if (is_ahead(packet)) ahead = epilogue.weights(packet);
      const Data all = scratch.template await_sum<kWorld>(waiter, 0, number * packets + packet, own, reduction);
      const Data x = epilogue.with_residual(all, residual);
      epilogue.keep(packet, x);
      epilogue.add(columns, packet, x, weights);
      stage.put(packet, x);
    });
    const RowScale scale = epilogue.scale(columns, x_of, weights);
    if (number + platform::blocks() >= rows) platform::release_next();
    epilogue.norm_row(x_of, weights, scale, shared.largest);
    // All threads have read the stage, the total and the largest values.
    if (number + platform::blocks() < rows || stage.is_long()) platform::sync_block();
    stage.clear();
  }
  for (uint32_t place = rows * packets + platform::block() * platform::threads() + platform::thread(); place < call.previous;
       place += platform::blocks() * platform::threads()) {
    scratch.clear(0, place);
  }
  end_call(sum.state, sum.wait, call.epoch, rows * packets);
}

}  // namespace symmetra::kernels
