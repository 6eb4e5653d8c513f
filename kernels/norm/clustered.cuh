// One-shot all-reduce and norm of rows of whole packets, on GPUs that have clusters: every rank sends all its rows to every
// peer, and reduces and norms all rows. In the region and epochs of the one-shot all-reduce. A cluster of blocks takes a row,
// and then the row that is as many rows further as there are clusters; a thread has one column of the row, and the column's
// first packet in registers.
// One block for a row would be slower: one multiprocessor moves a row's operands and packets at 64 bytes a clock.
#pragma once
#include "kernels/norm/epilogue.cuh"
#include "kernels/reduce.cuh"
#include "kernels/scratch.cuh"
#include "symmetra/device/platform/clusters.cuh"

namespace symmetra::kernels {

static_assert(platform::ClusterWords::kBytes == kClusteredSharedBytes && platform::kTeam == kMostClusteredGroup, "as fits says");

/// The totals of one row at a time, where a thread of a cluster has one column.
class TeamTotals {
 public:
  /// `shared`: kClusteredSharedBytes of shared memory. `column`: of this thread. All threads of the cluster call it.
  SYMMETRA_DEVICE TeamTotals(void* shared, uint32_t column, uint32_t packets, bool wants_largest)
      : teams_(((packets < kNormColumns ? packets : kNormColumns) + platform::kTeam - 1) / platform::kTeam),
        team_(column / platform::kTeam),
        wants_largest_(wants_largest),
        words_(shared, wants_largest_ ? 2 * teams_ : teams_) {}

  /// All threads call it once, before the first total.
  SYMMETRA_DEVICE void open() const { words_.open(); }

  /// The totals of all columns, for every thread of the cluster, by that of this thread's column. All threads call it.
  SYMMETRA_DEVICE RowTotals total(const RowTotals& mine) {
    static_assert(2 * kNormColumns / platform::kTeam == platform::ClusterWords::kMost, "a word a team and total");
    if (team_ < teams_) {
      words_.tell(team_, platform::bits_of(platform::team_sum(mine.squares)));
      if (wants_largest_) words_.tell(teams_ + team_, platform::team_max(platform::kTeam, platform::bits_of(mine.largest)));
    }
    const uint32_t* const heard = words_.hear();
    const uint32_t team = platform::thread() % platform::kTeam;
    RowTotals totals{platform::team_sum(team < teams_ ? platform::f32_of(heard[team]) : 0.0f), 0.0f};
    if (wants_largest_) {
      totals.largest = platform::f32_of(platform::team_max(platform::kTeam, team < teams_ ? heard[teams_ + team] : 0));
    }
    return totals;
  }

 private:
  uint32_t teams_, team_;
  bool wants_largest_;
  platform::ClusterWords words_;
};

/// kTiled: for rows of more packets than columns. Two ranks send many rows so, and more ranks few: there registers are worth
/// more than blocks that run at once.
template <class Element, uint32_t kWorld, bool kQuantised, bool kTiled>
SYMMETRA_KERNEL void SYMMETRA_BLOCKS_AT_ONCE(kTiled ? kMostClusteredThreads : 1024, kTiled&& kWorld == 2 ? 2 : 1)
    norm_clustered(SYMMETRA_ARGS(FusedNormArgs) args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Protocol = Sentinel<Element>;
  using Data = typename Protocol::Data;
  using Operands = Epilogue<Element, kQuantised, true>;
  const AllReduceArgs& sum = args.sum;
  const NormArgs& norm = args.norm;
  const uint32_t world = world_of<kWorld>(sum.world), rank = sum.rank;
  const uint32_t rows = static_cast<uint32_t>(norm.rows), packets = norm.hidden / kValues<Element, 4>;
  const uint32_t packet = platform::cluster_block() * platform::threads() + platform::thread();
  const uint32_t first = platform::cluster(), step = platform::clusters();
  const Reduction reduction{kSum, world};
  TeamTotals totals(platform::shared<void>(), packet, packets, Operands::wants_largest(norm));
  Data* const stage = platform::shared<Data>() + kClusteredSharedBytes / sizeof(Data);
  // The packets of this thread's column behind the first.
  const auto each_behind = [&](auto body) {
    if constexpr (kTiled) {
      SYMMETRA_ROLLED
      for (uint32_t behind = packet + kNormColumns; behind < packets; behind += kNormColumns) body(behind);
    }
  };
  const auto staged = [&](uint32_t behind) -> Data& {
    return stage[(behind / kNormColumns - 1) * platform::threads() + platform::thread()];
  };

  platform::wait_prior();
  const Call call = begin_call(sum.state, sum.wait);
  const auto input = [&](uint32_t number, uint32_t at) {
    const Row<Element, true> row(norm.input, uint64_t{number} * norm.hidden, norm.hidden);
    return row.load(at);
  };
  // What does not come from peers is loaded before the wait for them.
  Data own{}, residual{};
  typename Operands::Weights weights{};
  if (packet < packets && first < rows) {
    own = input(first, packet);
    residual = Operands(norm, first).residual(packet);
    weights = Operands(norm, first).weights(packet);
  }
  const Scratch<Protocol, 1> scratch(sum, world, call);
  device::Waiter waiter(sum.wait, args.op, call.epoch, call.poisoned != 0);
  const auto send = [&](uint32_t number, uint32_t at, const Data& values) {
    const Data data = Protocol::sendable(values);
    SYMMETRA_UNROLL
    for (uint32_t i = 1; i < world; ++i) {  // the next rank first, so that ranks do not all send to one at once
      const uint32_t peer = rank + i < world ? rank + i : rank + i - world;
      if (!waiter.gave_up()) scratch.send(0, peer, number * packets + at, data);
    }
    scratch.clear(0, number * packets + at);
  };

  for (uint32_t number = first; number < rows && packet < packets; number += step) {
    send(number, packet, number == first ? own : input(number, packet));
    each_behind([&](uint32_t behind) { send(number, behind, input(number, behind)); });
  }
  typename Operands::Values factors;
  Operands(norm, first).factors(weights, factors);
  totals.open();
  platform::release_next();  // its blocks begin while these wait
  for (uint32_t number = first; number < rows; number += step) {
    const Operands epilogue(norm, number);
    typename Operands::Values weighed{};
    RowTotals mine{};
    const auto arrive = [&](uint32_t at, const Data& ours, const Data& add) {
      const Data all = scratch.template await_sum<kWorld>(waiter, 0, number * packets + at, Protocol::sendable(ours), reduction);
      const Data x = epilogue.with_residual(all, add);
      epilogue.keep(at, x);
      return x;
    };
    const auto write = [&](uint32_t at, const typename Operands::Values& values, const RowScale& scale) {
      const Data y = epilogue.y(at, values, scale.factor);
      const float largest = epilogue.grouped() ? epilogue.largest_of_group(y) : scale.largest;
      if (at < packets) epilogue.store(at, y, largest);
    };
    if (packet < packets) {
      if (number != first) {
        own = input(number, packet);
        residual = epilogue.residual(packet);
      }
      const Data x = arrive(packet, own, residual);
      epilogue.weighed(packet, x, factors, weighed);
      mine = epilogue.totals(x, weighed);
    }
    each_behind([&](uint32_t behind) {
      typename Operands::Values values;
      const Data x = arrive(behind, input(number, behind), epilogue.residual(behind));
      epilogue.weighed(behind, x, epilogue.weights(behind), values);
      mine = mine.with(epilogue.totals(x, values));
      staged(behind) = x;
    });
    const RowScale scale = epilogue.scale(totals.total(mine));
    write(packet, weighed, scale);
    SYMMETRA_ROLLED
    for (uint32_t tile = kNormColumns; kTiled && tile < packets; tile += kNormColumns) {  // all threads: a group's share its largest
      typename Operands::Values values{};
      const uint32_t behind = tile + packet;
      if (behind < packets) epilogue.weighed(behind, staged(behind), epilogue.weights(behind), values);
      write(behind, values, scale);
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
