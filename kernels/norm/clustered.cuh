// One-shot all-reduce and norm of rows of whole packets, on GPUs with thread block clusters: every rank sends all its
// rows to every peer, and reduces and norms all rows. Uses the region and epochs of a one-shot all-reduce. Clusters
// take rows in a grid-stride loop.
#pragma once
#include <type_traits>

#include "kernels/norm/teams.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// Format: the format of quantised rows. kTiled: for rows of more packets than columns. Args: the fused argument block.
template <class Element, uint32_t kWorld, class Format, bool kTiled, class Args = FusedNormArgs>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) norm_clustered(SYMMETRA_ARGS(Args) args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, !std::is_same_v<Format, NoFormat>, RowsOf<Args>, true, Format>;
  const AllReduceArgs& sum = args.sum;
  const auto& norm = rows_of(args);
  const uint32_t world = world_of<kWorld>(sum.world), rank = sum.rank;
  const uint32_t rows = static_cast<uint32_t>(norm.rows), packets = norm.hidden / kValues<Element, 4>;
  const Seat<kTiled> seat(packets);
  const uint32_t packet = seat.packet;
  const uint32_t first = platform::cluster(), step = platform::clusters();
  const bool has = packet < packets;
  const Reduction reduction{kSum, world};
  TeamTotals<kTiled> totals(platform::shared<void>(), seat, packets, Operands::wants_largest(norm));

  platform::wait_prior();
  const Call call = begin_call(sum.state + platform::hidden_zero(), sum.wait);  // saves a tenth of a microsecond
  const auto input = [&](uint32_t number) {
    const Row<Element, true> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    return row.load(packet);
  };
  Data own{}, residual{};
  typename Operands::Weights weights{};
  if (has && first < rows) own = input(first);
  const Scratch<Protocol, 1> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);

  const auto send = [&](uint32_t number, const Data& row) {
    const Data data = Protocol::sendable(row);
    SYMMETRA_UNROLL
    for (uint32_t i = 1; i < world; ++i) {  // starts at the next rank, so that ranks do not all send to the same rank at once
      const uint32_t peer = rank + i < world ? rank + i : rank + i - world;
      if (!waiter.gave_up()) scratch.send(0, peer, number * packets + packet, data);
    }
  };
  if (has && first < rows) {
    send(first, own);
    // Loads that do not need peers are issued before the wait for peers, but after the row has been sent.
    residual = Operands(norm, first).residual(packet);
    weights = Operands(norm, first).weights(packet);
    scratch.clear(0, first * packets + packet);
  }
  SYMMETRA_ROLLED
  for (uint32_t number = first + step; number < rows && has; number += step) {
    send(number, input(number));
    scratch.clear(0, number * packets + packet);
  }
  typename Operands::Values factors;
  [[maybe_unused]] typename Operands::Values biases{};
  Operands(norm, first).factors(weights, factors);
  if constexpr (Operands::kLayer) {
    if (has) Operands(norm, first).biases(packet, biases);
  }
  totals.open();
  platform::release_next();  // blocks of the next kernel start while these wait
  for (uint32_t number = first; number < rows; number += step) {
    const Operands epilogue(norm, number);
    [[maybe_unused]] typename Operands::Values weighed{};
    [[maybe_unused]] RowTotals mine{};
    Data x{};
    if (has) {
      if (number != first) {
        own = input(number);
        residual = epilogue.residual(packet);
      }
      const Data all = scratch.template await_sum<kWorld>(waiter, 0, number * packets + packet, Protocol::sendable(own), reduction);
      x = epilogue.with_residual(all, residual);
      if constexpr (!Operands::kLayer) {
        epilogue.weighed(packet, x, factors, weighed);
        mine = epilogue.totals(x, weighed);
      }
    }
    if constexpr (Operands::kLayer) {
      epilogue.layer_norm_in_cluster(totals, packet, has, x, factors, biases);
    } else {
      totals.tell(mine);
      const float of_group = epilogue.largest_of_group(has, weighed);
      const RowTotals total = totals.hear();
      if (has) epilogue.keep(packet, x);  // after the exchange, which then waits for no store
      epilogue.norm_in_team(packet, has, weighed, of_group, epilogue.scale(total));
    }
  }
  platform::sync_block();  // before the state advances
  for (uint32_t place = rows * packets + platform::block() * platform::threads() + platform::thread(); place < call.previous;
       place += platform::blocks() * platform::threads()) {
    scratch.clear(0, place);
  }
  end_call(sum.state, sum.wait, call.epoch, rows * packets);
#endif
}

}  // namespace symmetra::kernels
