// The four kernels of experts in packets, alone: dispatch and combine of two ranks in graphs, for developers who change
// the kernels. If there are two GPUs each rank has its own; else the ranks share one GPU, which shows latency but no
// link, and is fair only while the blocks of both ranks fit the GPU at once. Counts of received rows are compared;
// `symmetra-bench moe` verifies every byte.
//   expert_kernels LAYOUT TOKENS...        (256 experts, 8 a token, rows of 7168, e4m3 there and bf16 back)
// LAYOUT is padded, by-rank or by-source.
// One line for each number of tokens: microseconds of a dispatch, of a combine, and of both, the median of 30 graphs of 20.
#include <cstring>
#include <string>

#include "bench/expert_graphs.cuh"
#include "kernels/experts/by_source.cuh"
#include "kernels/experts/by_token.cuh"
#include "kernels/experts/receive.cuh"
#include "kernels/experts/send.cuh"

namespace {

using namespace symmetra::bench;
using namespace symmetra::kernels;

constexpr uint32_t kExperts = 256, kTopK = 8, kHidden = 7168, kMostTokens = 128, kBuffers = 2;
constexpr uint32_t kLocal = kExperts / kWorld, kPairs = kMostTokens * kTopK, kScaleBytes = kHidden / kCodeGroup * 4;
constexpr int kCalls = 20, kGraphs = 30;

/// The layout of a region.
struct Plan {
  static constexpr uint64_t row = kHidden + kScaleBytes, part = kHidden * 2;
  static constexpr uint64_t replicas = up(sizeof(RoutingHeader) + 4 * (kExperts + kWorld), 16), weights = up(replicas + 2 * kPairs, 16);
  static constexpr uint64_t header = up(weights + 4 * kPairs, 16), control = sizeof(RoutingHeader) / 8 + kPairs;
  static constexpr uint64_t headers = up(kWorld * header, 256), rows = headers + up(kWorld * control * 16, 256);
  static constexpr uint64_t dispatch = rows + up(kWorld * kMostTokens * row, 256) - headers;
  static constexpr uint64_t flags = headers + kBuffers * dispatch, parts = flags + 256;
  static constexpr uint64_t combine = parts + up(kWorld * kMostTokens * part, 256) - flags;
  static constexpr uint64_t bytes = flags + kBuffers * combine;
};

struct Rank {
  uint32_t number;
  Place place;
  std::vector<int32_t> experts;
  uint8_t *region, *rows, *received, *results, *output;
  uint32_t *table, *state, *places, *counts;
  int32_t *ids, *local_ids;
  float *weights, *scales, *sums;
  BlockState* calls;
  Progress* progress;
  Status* status;
};

Rank open(uint32_t number, int devices, std::mt19937& random) {
  Rank rank{};
  rank.number = number;
  rank.place = Place(number, devices);
  rank.experts = drawn(kMostTokens, kExperts, kTopK, random);
  const uint64_t received = uint64_t{kLocal} * kWorld * kMostTokens;
  rank.ids = memory(rank.experts);
  rank.table = memory(table_of(kExperts));
  rank.weights = memory(std::vector<float>(kPairs, 0.25f));
  rank.region = memory(Plan::bytes);
  for (uint32_t i = 0; i < kBuffers; ++i) {
    check(cudaMemset(rank.region + Plan::rows + i * Plan::dispatch, 0xFF, kWorld * kMostTokens * Plan::row), "fill");
    check(cudaMemset(rank.region + Plan::parts + i * Plan::combine, 0xFF, kWorld * kMostTokens * Plan::part), "fill");
  }
  rank.state = memory<uint32_t>((2 + 2 * kLocal) * 4);
  rank.places = memory<uint32_t>(kWorld * kMostTokens * (kTopK + 2) * 4);
  rank.counts = memory<uint32_t>(kLocal * 4);
  rank.local_ids = memory<int32_t>(uint64_t{kWorld} * kPairs * 4);
  rank.calls = memory<BlockState>(4 * kMaxBlocks * sizeof(BlockState));
  rank.progress = memory<Progress>(sizeof(Progress));
  rank.rows = memory(kMostTokens * Plan::part, 0x3C);
  rank.received = memory(received * kHidden);
  rank.scales = memory<float>(received * kScaleBytes);
  rank.results = memory(received * Plan::part, 0x3C);
  rank.output = memory(kMostTokens * Plan::part);
  rank.sums = memory<float>(kMostTokens * kHidden * 4);
  check(cudaMallocHost(&rank.status, sizeof(Status)), "cudaMallocHost");
  std::memset(rank.status, 0, sizeof(Status));
  return rank;
}

/// Fills the fields that all kernels read. `kernel`: the number of its block states.
void fill(ExpertArgs& args, const Rank& rank, uint32_t layout, uint32_t tokens, uint32_t kernel) {
  args.wait = {rank.progress, rank.status, 2'000'000'000};
  args.calls = rank.calls + kernel * kMaxBlocks;
  args.rank = rank.number;
  args.world = kWorld;
  args.tokens = tokens;
  args.top_k = kTopK;
  args.max_tokens = kMostTokens;
  args.hidden = kHidden;
  args.layout = layout;
  args.align = 1;
  args.experts = args.replicas = kExperts;
  args.first_replica = rank.number * kLocal;
  args.local = kLocal;
  args.table = rank.table;
  args.headers = rank.region;
  args.state = rank.state;
  args.places = rank.places;
  args.header_bytes = Plan::header;
  args.replicas_offset = Plan::replicas;
  args.weights_offset = Plan::weights;
  args.capacity = kWorld * kMostTokens;
}

ExpertPacketArea packets(const std::vector<Rank>& ranks, uint64_t bytes, uint64_t control, uint64_t data, uint32_t control_packets) {
  ExpertPacketArea area{kBuffers, control_packets, bytes, data, control, {}};
  for (uint32_t peer = 0; peer < kWorld; ++peer) area.regions[peer] = ranks[peer].region;
  return area;
}

template <class Args>
Args dispatched(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens, uint32_t kernel) {
  Args args{};
  fill(args, ranks[number], layout, tokens, kernel);
  args.row_bytes = Plan::row;
  args.scales_offset = args.payload_bytes = kHidden;
  args.wire = kWireF8;
  args.dtype = kBF16;
  args.packets = packets(ranks, Plan::dispatch, Plan::headers, Plan::rows, Plan::control);
  return args;
}

void dispatch(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  const Rank& rank = ranks[number];
  auto send = dispatched<SendArgs>(ranks, layout, number, tokens, 0);
  send.rows = {rank.rows, nullptr};
  send.routing = {rank.ids, rank.weights, nullptr, 4, 0};
  const bool by_source = layout == kRowsBySource;
  const uint64_t run = up(Plan::row / 16, 32), runs = by_source ? 1 : up(tokens * kTopK, run) / run;
  launch(expert_send<BF16, RowProtocol>, rank.place, send, tokens + runs, Plan::row / 16, 1024);
  const uint64_t expected = std::max(tokens * kWorld, 8u), most_at_once = by_source ? 1 : 8;
  const uint64_t at_once = std::min<uint64_t>(up(expected, kMaxBlocks / 2) / (kMaxBlocks / 2), most_at_once);
  auto receive = dispatched<ReceiveArgs>(ranks, layout, number, tokens, 1);
  receive.rows_at_once = static_cast<uint32_t>(at_once);
  receive.follows = receive.holds_replicas = 1;
  receive.into.rows = rank.received;
  receive.into.scales = rank.scales;
  if (by_source) {
    receive.into.ids = rank.local_ids;
    launch(expert_receive_by_source<RowProtocol>, rank.place, receive, expected, up(Plan::row / 16, 32) + kWorld + kTopK,
           kMostAheadThreads);
    return;
  }
  receive.counts.rows = rank.counts;
  launch(layout == kRowsByRank ? expert_receive<RowProtocol, true> : expert_receive<RowProtocol, false>, rank.place, receive,
         up(expected, at_once) / at_once, up(Plan::row / 16 * at_once, 32) + at_once * kTopK, kMostAheadThreads);
}

void combine(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  const Rank& rank = ranks[number];
  const bool by_token = layout != kRowsPadded;
  const auto shared = [&](auto kernel, uint32_t task, uint64_t units) {
    const uint64_t sharers = std::clamp<uint64_t>((by_token ? 128 : 64) / units, 1, Plan::part / 16 / 128);
    const uint64_t items = up(Plan::part / 16, sharers) / sharers, rounds = up(items, kMostAheadThreads) / kMostAheadThreads;
    CombinePacketArgs args{};
    fill(args, rank, layout, tokens, 2 + task);
    args.results = rank.results;
    args.output = rank.output;
    args.sums = rank.sums;
    args.part_bytes = Plan::part;
    args.weighs = !by_token;
    args.sharers = static_cast<uint32_t>(sharers);
    args.dtype = kBF16;
    args.task = task;
    args.own_stays = by_token;
    args.follows = task == kCombineReceive;
    args.packets = packets(ranks, Plan::combine, Plan::flags, Plan::parts, 1);
    launch(kernel, rank.place, args, units * sharers, up(items, rounds) / rounds, kMostAheadThreads);
  };
  const uint64_t units = std::max(tokens * (kWorld - by_token), 8u);
  if (by_token) {
    shared(tokens > 64 ? expert_return_rows<BF16, 2> : expert_return_rows<BF16, 1>, kCombineSend, units);
    shared(tokens > 64 ? expert_sum_rows<BF16, 2, 2> : expert_sum_rows<BF16, 2, 1>, kCombineReceive, std::max(tokens, 1u));
  } else {
    shared(expert_return<BF16>, kCombineSend, units);
    shared(expert_sum<BF16>, kCombineReceive, std::max(tokens, 1u));
  }
}

/// Experts of a rank whose number of received rows differs from the number in the ids of all ranks.
uint32_t count_wrong(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  std::vector<uint32_t> found(kLocal), meant(kLocal);
  if (layout == kRowsBySource) {
    std::vector<int32_t> ids(kWorld * kPairs);
    check(cudaMemcpy(ids.data(), ranks[number].local_ids, ids.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const int32_t id : ids) {
      if (id >= 0) ++found[static_cast<uint32_t>(id)];
    }
  } else {
    check(cudaMemcpy(found.data(), ranks[number].counts, kLocal * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  for (const Rank& source : ranks) {
    for (uint32_t pair = 0; pair < tokens * kTopK; ++pair) {
      const auto expert = static_cast<uint32_t>(source.experts[pair]);
      meant[expert % kLocal] += expert / kLocal == number;
    }
  }
  uint32_t wrong = ranks[number].status->code != kStatusOk;
  for (uint32_t expert = 0; expert < kLocal; ++expert) wrong += found[expert] != meant[expert];
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> layouts{"by-rank", "by-expert", "padded", "by-source"};
  const auto named = std::find(layouts.begin(), layouts.end(), count > 1 ? arguments[1] : "");
  if (named == layouts.end() || *named == "by-expert") {
    std::fprintf(stderr, "the layout is padded, by-rank or by-source\n");
    return 2;
  }
  const auto layout = static_cast<uint32_t>(named - layouts.begin());
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  devices = std::min(devices, static_cast<int>(kWorld));
  std::mt19937 random(7);
  std::vector<Rank> ranks;
  for (uint32_t i = 0; i < kWorld; ++i) ranks.push_back(open(i, devices, random));
  uint32_t wrong = 0;
  for (int i = 2; i < count; ++i) {
    const auto tokens = static_cast<uint32_t>(std::clamp(std::atoi(arguments[i]), 0, static_cast<int>(kMostTokens)));
    const auto there = [&](uint32_t rank) { dispatch(ranks, layout, rank, tokens); };
    const auto back = [&](uint32_t rank) { combine(ranks, layout, rank, tokens); };
    const auto both = [&](uint32_t rank) { there(rank), back(rank); };
    const auto place = [&](uint32_t rank) -> const Place& { return ranks[rank].place; };
    const auto timed = [&](auto enqueue) { return time(place, enqueue, kCalls, kGraphs); };
    const double dispatch_us = timed(there), combine_us = timed(back), both_us = timed(both);
    for (uint32_t rank = 0; rank < kWorld; ++rank) wrong += count_wrong(ranks, layout, rank, tokens);
    std::printf("%4u tokens: dispatch %7.2f us, combine %7.2f us, both %7.2f us, wrong %u\n", tokens, dispatch_us, combine_us, both_us,
                wrong);
  }
  return wrong == 0 ? 0 : 1;
}
