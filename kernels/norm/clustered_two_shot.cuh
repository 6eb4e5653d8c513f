// Two-shot all-reduce and norm of rows of whole packets, on GPUs with thread block clusters. Region, epochs and packets
// are those of norm/two_shot.cuh: a rank reduces the rows of its share and sends x, and after each row one packet with
// the row's scale. Clusters take the rows of all shares in a grid-stride loop. With few rows, a cluster takes rows of
// one share only: it sums the rows of its own rank's share; for the share of another rank it sends its inputs to the
// owner, and waits for x.
#pragma once
#include <type_traits>

#include "kernels/norm/stage.cuh"
#include "kernels/norm/teams.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// Selects one of a few values. The values stay in registers; an index would place them in memory.
template <uint32_t kCount>
SYMMETRA_DEVICE Words<4> pick(const Words<4> (&values)[kCount], uint32_t number) {
  Words<4> picked = values[0];
  SYMMETRA_UNROLL
  for (uint32_t i = 1; i < kCount; ++i) {
    if (i == number) picked = values[i];
  }
  return picked;
}

/// The minimum number of resident blocks on a multiprocessor, as a launch bound. By share the number is three, so that
/// blocks of the next kernel can start while these run. Most kernels fit three blocks without a bound, and a bound
/// would make their code slower. With more than four ranks, clusters by share are few.
template <uint32_t kWorld, class Format, bool kByShare, bool kTiled>
constexpr uint32_t blocks_at_once =
    !kByShare || kWorld > 4 || !(kTiled || std::is_same_v<Format, KnownFormat<kNarrowE4M3, kScalingMx>>) ? 1 : 3;
template <uint32_t kBlocks>
constexpr uint32_t threads_at_once = kBlocks == 1 ? kMostClusteredThreads : kMostByShareThreads;

/// Format: the format of quantised rows. kByShare: a cluster takes rows of one share; the number of clusters is a
/// multiple of the number of shares. kTiled: for rows of more packets than columns.
template <class Element, uint32_t kWorld, class Format, bool kByShare, bool kTiled,
          uint32_t kBlocks = blocks_at_once<kWorld, Format, kByShare, kTiled>>
SYMMETRA_KERNEL void SYMMETRA_BLOCKS_AT_ONCE(threads_at_once<kBlocks>, kBlocks) norm_clustered_two_shot(SYMMETRA_ARGS(FusedNormArgs) args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, !std::is_same_v<Format, NoFormat>, NormArgs, true, Format>;
  constexpr uint32_t kAtOnce = kWorld == 0 || kByShare ? 1 : kWorld;  // ranks whose packets a thread has in flight
  const AllReduceArgs& sum = args.sum;
  const NormArgs& norm = args.norm;
  const uint32_t world = world_of<kWorld>(sum.world), rank = sum.rank;
  const uint32_t packets = norm.hidden / kValues<Element, 4>;
  const uint32_t pitch = row_pitch(packets);
  const Shares shares(static_cast<uint32_t>(norm.rows), world);
  const bool scattered = args.share_rows != 0, gathers = !scattered || args.gathers != 0;
  const auto row_of = [&](uint32_t owner, uint32_t number) {
    return (scattered ? owner * args.share_rows : uint64_t{shares.first(owner)}) + number;
  };
  const Seat<kTiled> seat(packets);
  const uint32_t packet = seat.packet;
  const uint32_t turn = kByShare ? platform::cluster() % world : 0;
  const uint32_t first = kByShare ? platform::cluster() / world : platform::cluster(),
                 step = kByShare ? platform::clusters() / world : platform::clusters();
  const bool has = packet < packets;
  const Reduction reduction{kSum, world};
  TeamTotals<kTiled> totals(platform::shared<void>(), seat, packets, Operands::wants_largest(norm));

  platform::wait_prior();
  const Call call = begin_call(sum.state + platform::hidden_zero(), sum.wait);
  const auto input = [&](uint32_t owner, uint32_t number) {
    const Row<Element, true> row(norm.input, row_of(owner, number) * norm.hidden, norm.hidden);
    return row.load(packet);
  };
  // Starts at the next rank, so that ranks do not all send to the same rank at once.
  const auto behind = [&](uint32_t i) { return rank + i < world ? rank + i : rank + i - world; };
  const bool owns = turn == 0;  // sums rows of the own share
  const Scratch<Protocol, 2> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);

  SYMMETRA_ROLLED
  for (uint32_t number = first; number < shares.size; number += step) {
    constexpr uint32_t kPeers = kWorld == 0 || kByShare ? 1 : kWorld - 1;
    const uint32_t end = !kByShare ? world : owns ? 0 : turn + 1;
    for (uint32_t i = kByShare ? turn : 1; i < end && has; i += kPeers) {
      Data rows[kPeers];
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kPeers; ++k) {
        if (shares.has(behind(i + k), number)) rows[k] = input(behind(i + k), number);
      }
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kPeers; ++k) {
        if (!shares.has(behind(i + k), number) || waiter.gave_up()) continue;
        scratch.send(0, behind(i + k), number * pitch + packet, Protocol::sendable(rows[k]));
      }
    }
    for (uint32_t hop = 0; hop < 2 && (!kByShare || turn == 1); ++hop) {
      if (has) scratch.clear(hop, number * pitch + packet);
      if (packet < pitch - packets) scratch.clear(hop, number * pitch + packets + packet);
    }
  }
  // Loads that do not need peers are issued before the wait for peers, but after the rows have been sent.
  Data own{}, residual{};
  typename Operands::Weights weights{};
  if (has) weights = Operands(norm, 0).weights(packet);
  if (has && owns && shares.has(rank, first)) {
    own = input(rank, first);
    residual = Operands(norm, row_of(rank, first)).residual(packet);
  }
  typename Operands::Values factors;
  Operands(norm, 0).factors(weights, factors);
  totals.open();
  platform::release_next();  // blocks of the next kernel start while these wait
  SYMMETRA_ROLLED
  for (uint32_t number = first; owns && shares.has(rank, number); number += step) {
    const Operands epilogue(norm, row_of(rank, number));
    const uint32_t place = number * pitch;
    typename Operands::Values weighed{};
    RowTotals mine{};
    Data x{};
    if (has) {
      if (number != first) {
        own = input(rank, number);
        residual = epilogue.residual(packet);
      }
      const Data all = scratch.template await_sum<kWorld, kByShare>(waiter, 0, place + packet, Protocol::sendable(own), reduction);
      x = epilogue.with_residual(all, residual);
      SYMMETRA_UNROLL
      for (uint32_t i = 1; i < world; ++i) {
        if (gathers && !waiter.gave_up()) scratch.send(1, behind(i), place + packet, x);
      }
      epilogue.weighed(packet, x, factors, weighed);
      mine = epilogue.totals(x, weighed);
    }
    bool failed = waiter.gave_up();
    totals.tell(mine, failed);
    const float of_group = epilogue.largest_of_group(has, weighed);
    const RowTotals total = totals.hear(failed);
    const RowScale scale = epilogue.scale(total);
    // A thread without a packet has contributed nothing to the total, so no peer gets a scale.
    if (gathers && packet < world - 1 && !failed) {
      scratch.send(1, behind(1 + packet), place + scale_at(packets), F32::pack<4>({scale.factor, scale.largest, 0.0f, 0.0f}));
    }
    if (has) epilogue.keep(packet, x);  // after the exchange, which then waits for no store
    epilogue.norm_in_team(packet, has, weighed, of_group, scale);
  }
  SYMMETRA_ROLLED
  for (uint32_t number = first; gathers && number < shares.size; number += step) {
    const uint32_t end = kByShare ? behind(turn) + 1 : world;
    for (uint32_t from = kByShare ? behind(turn) : 0; from < end; from += kAtOnce) {
      const auto comes = [&](uint32_t peer) { return peer != rank && shares.has(peer, number); };
      const auto arrives = [&](uint32_t peer) { return has && comes(peer); };
      Data x[kAtOnce]{}, scales[kAtOnce]{};
      scratch.await_each(waiter, 1, number * pitch + packet, from, arrives, x);
      typename Operands::Values weighed;
      float of_group = 0.0f;
      const auto weigh = [&](const Data& arrived) {
        const Operands epilogue(norm, 0);
        epilogue.weighed(packet, arrived, factors, weighed);
        of_group = epilogue.largest_of_group(has, weighed);
      };
      if (kAtOnce == 1) weigh(x[0]);
      scratch.await_each(waiter, 1, number * pitch + scale_at(packets), from, arrives, scales);
      SYMMETRA_ROLLED
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t peer = from + i;
        if (!comes(peer)) continue;
        const Operands epilogue(norm, row_of(peer, number));
        const Data arrived = pick(x, i);
        const RowScale scale = RowScale::of(pick(scales, i));
        if (has && !scattered) epilogue.keep(packet, arrived);
        if (kAtOnce != 1) weigh(arrived);
        epilogue.norm_in_team(packet, has, weighed, of_group, scale);
      }
    }
  }
  platform::sync_block();  // before the state advances
  for (uint32_t place = shares.size * pitch + platform::block() * platform::threads() + platform::thread(); place < call.previous;
       place += platform::blocks() * platform::threads()) {
    for (uint32_t hop = 0; hop < 2; ++hop) scratch.clear(hop, place);
  }
  end_call(sum.state, sum.wait, call.epoch, shares.size * pitch);
#endif
}

}  // namespace symmetra::kernels
