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
  static constexpr uint64_t copies = up(sizeof(ExpertHead) + 4 * (kExperts + kWorld), 16), weights = up(copies + 2 * kPairs, 16);
  static constexpr uint64_t head = up(weights + 4 * kPairs, 16), telling = sizeof(ExpertHead) / 8 + kPairs;
  static constexpr uint64_t heads = up(kWorld * head, 256), rows = heads + up(kWorld * telling * 16, 256);
  static constexpr uint64_t dispatch = rows + up(kWorld * kMostTokens * row, 256) - heads;
  static constexpr uint64_t greetings = heads + kBuffers * dispatch, parts = greetings + 256;
  static constexpr uint64_t combine = parts + up(kWorld * kMostTokens * part, 256) - greetings;
  static constexpr uint64_t bytes = greetings + kBuffers * combine;
};

struct Rank {
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

/// The arguments that dispatch and combine have in common.
ExpertArgs common(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  const Rank& rank = ranks[number];
  ExpertArgs args{};
  args.wait = {rank.progress, rank.status, 2'000'000'000};
  args.table = rank.table;
  args.heads = rank.region;
  args.state = rank.state;
  args.places = rank.places;
  args.ids = rank.ids;
  args.weights = rank.weights;
  args.sums = rank.sums;
  args.head_bytes = Plan::head;
  args.copies_offset = Plan::copies;
  args.weights_offset = Plan::weights;
  args.scales_offset = kHidden;
  args.capacity = kWorld * kMostTokens;
  args.rank = number;
  args.world = kWorld;
  args.dtype = kBF16;
  args.wire = kWireF8;
  args.payload_bytes = kHidden;
  args.layout = layout;
  args.align = 1;
  args.experts = args.copies = kExperts;
  args.first_copy = number * kLocal;
  args.local = kLocal;
  args.top_k = kTopK;
  args.hidden = kHidden;
  args.tokens = tokens;
  args.max_tokens = kMostTokens;
  args.id_bytes = 4;
  args.buffers = kBuffers;
  args.rows_at_once = args.parts = 1;
  for (uint32_t peer = 0; peer < kWorld; ++peer) args.regions[peer] = ranks[peer].region;
  return args;
}

template <class Kernel>
void launch(Kernel kernel, const Rank& rank, ExpertArgs args, uint32_t task, uint64_t units, uint64_t items, uint64_t most_threads) {
  args.task = task;
  args.calls = rank.calls + (task - kExpertSend) * kMaxBlocks;
  symmetra::bench::launch(kernel, rank.place, args, units, items, most_threads);
}

void dispatch(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  const Rank& rank = ranks[number];
  ExpertArgs args = common(ranks, layout, number, tokens);
  args.op = kOpDispatch;
  args.row_bytes = Plan::row;
  args.tellings_offset = Plan::heads;
  args.travelling_offset = Plan::rows;
  args.buffer_bytes = Plan::dispatch;
  args.telling_packets = Plan::telling;
  args.rows = rank.rows;
  const bool by_source = layout == kRowsBySource;
  const uint64_t run = up(Plan::row / 16, 32), runs = by_source ? 1 : up(tokens * kTopK, run) / run;
  launch(expert_send<BF16, RowProtocol>, rank, args, kExpertSend, tokens + runs, Plan::row / 16, 1024);
  const uint64_t expected = std::max(tokens * kWorld, 8u), most_at_once = by_source ? 1 : 8;
  const uint64_t at_once = std::min<uint64_t>(up(expected, kMaxBlocks / 2) / (kMaxBlocks / 2), most_at_once);
  args.rows_at_once = static_cast<uint16_t>(at_once);
  args.follows = args.holds = 1;
  args.output = rank.received;
  args.into.scales = rank.scales;
  if (by_source) {
    args.into.ids = rank.local_ids;
    launch(expert_receive_by_source<RowProtocol>, rank, args, kExpertReceive, expected, up(Plan::row / 16, 32) + kWorld + kTopK,
           kMostAheadThreads);
    return;
  }
  args.into.counts = rank.counts;
  launch(expert_receive<RowProtocol>, rank, args, kExpertReceive, up(expected, at_once) / at_once,
         up(Plan::row / 16 * at_once, 32) + at_once * kTopK, kMostAheadThreads);
}

void combine(const std::vector<Rank>& ranks, uint32_t layout, uint32_t number, uint32_t tokens) {
  const Rank& rank = ranks[number];
  ExpertArgs args = common(ranks, layout, number, tokens);
  args.op = kOpCombine;
  args.row_bytes = Plan::part;
  args.tellings_offset = Plan::greetings;
  args.travelling_offset = Plan::parts;
  args.buffer_bytes = Plan::combine;
  args.telling_packets = 1;
  args.weighs = layout == kRowsPadded;
  args.rows = rank.results;
  const auto shared = [&](auto kernel, uint32_t task, uint64_t units) {
    const uint64_t parts = std::clamp<uint64_t>((layout != kRowsPadded ? 128 : 64) / units, 1, Plan::part / 16 / 128);
    args.parts = static_cast<uint16_t>(parts);
    const uint64_t items = up(Plan::part / 16, parts) / parts, rounds = up(items, kMostAheadThreads) / kMostAheadThreads;
    launch(kernel, rank, args, task, units * parts, up(items, rounds) / rounds, kMostAheadThreads);
  };
  const bool by_token = layout != kRowsPadded;
  args.holds = by_token;
  const uint64_t units = std::max(tokens * (kWorld - by_token), 8u);
  if (by_token) {
    shared(tokens > 64 ? expert_return_rows<BF16, 2> : expert_return_rows<BF16, 1>, kExpertReturn, units);
  } else {
    shared(expert_return<BF16>, kExpertReturn, units);
  }
  args.follows = 1;
  args.output = rank.output;
  if (by_token) {
    shared(tokens > 64 ? expert_sum_rows<BF16, 2, 2> : expert_sum_rows<BF16, 2, 1>, kExpertSum, std::max(tokens, 1u));
  } else {
    args.rows = nullptr;
    shared(expert_sum<BF16>, kExpertSum, std::max(tokens, 1u));
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
