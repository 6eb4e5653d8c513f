// Two-shot all-reduce and norm: rank p owns the rows of share p, reduces them, and sends x to every peer, followed by
// one packet with the row's scale and largest absolute value, which are known only after the whole row is summed. A
// peer norms and quantises the rows that it receives. So only x is sent, for any set of outputs. Uses the region and
// epochs of the two-shot all-reduce. If rows are scattered, a rank outputs the rows of its share only, or gathers the
// normed rows of all shares.
#pragma once
#include "kernels/norm/epilogue.cuh"
#include "kernels/norm/stage.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

template <class Element, uint32_t kWorld, bool kQuantised, class Args>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_two_shot(SYMMETRA_ARGS(Args) args) {
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, kQuantised, RowsOf<Args>>;
  const AllReduceArgs& sum = args.sum;
  const auto& norm = rows_of(args);
  const uint32_t world = world_of<kWorld>(sum.world), lanes_log2 = sum.lanes_log2, lanes = 1u << lanes_log2, rank = sum.rank;
  const uint32_t rows = static_cast<uint32_t>(norm.rows), packets = packets_of<Element>(norm.hidden);
  const uint32_t pitch = row_pitch(packets);
  const Shares shares(rows, world);
  const bool scattered = args.share_rows != 0, gathers = !scattered || args.gathers != 0;
  const auto first_row = [&](uint32_t owner) { return scattered ? owner * args.share_rows : uint64_t{shares.first(owner)}; };
  const Reduction reduction{kSum, world};
  const NormShared shared(world << lanes_log2, packets);
  const Columns columns(shared.columns, packets, Operands::wants_largest(norm) ? shared.largest : nullptr);

  platform::wait_prior();
  const Call call = begin_call(sum.state, sum.wait);
  const platform::Items pairs(world << lanes_log2, [&](uint32_t t) { return make_pair(sum, t, world); });
  const Scratch<Protocol, 2> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);

  for (uint32_t number = platform::block(); number < shares.size; number += platform::blocks()) {
    for (uint32_t tile = 0; tile < pitch; tile += lanes) {
      pairs.each([&](const Pair& pair) {
        const uint32_t packet = tile + pair.lane;
        if (pair.peer == rank || packet >= pitch) return;
        if (packet < packets && shares.has(pair.peer, number) && !waiter.gave_up()) {
          const Row<Element> row(norm.input, (first_row(pair.peer) + number) * norm.hidden, norm.hidden);
          scratch.send(0, pair, number * pitch + tile, Protocol::sendable(row.load(packet)));
        }
        scratch.clear(0, pair, number * pitch + tile);
        scratch.clear(1, pair, number * pitch + tile);
      });
    }
  }
  platform::sync_block();  // also in a block without rows, before the state advances
  bool failed = false;
  for (uint32_t number = platform::block(); shares.has(rank, number); number += platform::blocks()) {
    const Row<Element> row(norm.input, (first_row(rank) + number) * norm.hidden, norm.hidden);
    const Operands epilogue(norm, first_row(rank) + number);
    const Stage<Protocol> stage(shared.stage, scratch.own_slot(), number * pitch, packets);
    const auto weights = [&](uint32_t packet) { return epilogue.weights(packet); };
    const auto x_of = [&](uint32_t packet) { return stage.get(packet); };
    for (uint32_t tile = 0; tile < packets; tile += lanes) {
      pairs.each([&](const Pair& pair) {
        const uint32_t packet = tile + pair.lane;
        if (packet >= packets) return;
        shared.arrived[pair.place] =
            pair.peer == rank ? Protocol::sendable(row.load(packet)) : scratch.await(waiter, 0, pair, number * pitch + tile);
      });
      // A thread without a packet has no result, so the whole block sends nothing.
      failed |= platform::sync_block_or(waiter.gave_up());
      platform::each(lanes, [&](uint32_t lane) {
        const uint32_t packet = tile + lane;
        if (packet >= packets) return;
        const Data all = reduce_ranks<Element, kWorld>(shared.arrived + lane, lanes_log2, reduction);
        const Data x = epilogue.with_residual(all, epilogue.residual(packet));
        epilogue.keep(packet, x);
        epilogue.add(columns, packet, x, weights);
        stage.put(packet, x);
      });
      platform::sync_block();
      pairs.each([&](const Pair& pair) {
        const uint32_t packet = tile + pair.lane;
        if (!gathers || pair.peer == rank || packet >= packets || failed) return;
        scratch.send(1, pair, number * pitch + tile, stage.get(packet));
      });
    }
    const RowScale scale = epilogue.scale(columns, x_of, weights);
    pairs.each([&](const Pair& pair) {
      if (!gathers || pair.peer == rank || pair.lane != 0 || failed) return;
      scratch.send(1, pair, number * pitch + scale_at(packets), F32::pack<4>({scale.factor, scale.largest, scale.mean, 0.0f}));
    });
    epilogue.norm_row(x_of, weights, scale, shared.largest);
    platform::sync_block();  // all threads have read the stage, the total and the largest values
    stage.clear();
  }
  const Groups groups = Operands::groups(norm, lanes);
  for (uint32_t number = platform::block(); gathers && number < shares.size; number += platform::blocks()) {
    const auto each_peer = [&](auto body) {
      pairs.each([&](const Pair& pair) {
        if (pair.peer == rank || !shares.has(pair.peer, number) || pair.lane >= groups.packets()) return;
        Pair first = pair;
        first.from -= pair.lane;
        const RowScale scale = RowScale::of(scratch.await(waiter, 1, first, number * pitch + scale_at(packets)));
        body(pair, Operands(norm, first_row(pair.peer) + number), scale);
      });
    };
    const auto arrived = [&](const Pair& pair, uint32_t packet) {
      return packet < packets ? scratch.await(waiter, 1, pair, number * pitch + packet - pair.lane) : Data{};
    };
    for (uint32_t start = 0; start < groups.packets(); start += groups.span()) {
      const uint32_t count = groups.count(start);
      if (groups.any()) {
        each_peer([&](const Pair& pair, const Operands& epilogue, const RowScale& scale) {
          for (uint32_t offset = pair.lane; offset < count; offset += lanes) {
            const Data x = arrived(pair, start + offset);
            if (offset == pair.lane) shared.arrived[pair.place] = x;
            groups.note(shared.largest + (pair.peer << lanes_log2), offset,
                        epilogue.largest(start + offset, x, epilogue.weights(start + offset), scale));
          }
        });
        platform::sync_block();
      }
      each_peer([&](const Pair& pair, const Operands& epilogue, const RowScale& scale) {
        for (uint32_t offset = pair.lane; offset < count; offset += lanes) {
          const Data x = groups.any() && offset == pair.lane ? shared.arrived[pair.place] : arrived(pair, start + offset);
          if (start + offset < packets && !scattered) epilogue.keep(start + offset, x);
          const float* const noted = shared.largest + (pair.peer << lanes_log2);
          const float largest = groups.any() ? groups.largest(noted, offset, count) : scale.largest;
          epilogue.norm(start + offset, x, epilogue.weights(start + offset), scale.with_largest(largest));
        }
      });
      if (groups.any()) platform::sync_block();  // all threads have read the largest values
    }
  }
  platform::release_next();
  scratch.clear_rest(pairs, shares.size * pitch);
  end_call(sum.state, sum.wait, call.epoch, shares.size * pitch);
}

}  // namespace symmetra::kernels
