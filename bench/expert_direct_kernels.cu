// The kernels of experts by direct access by source, alone: dispatch and combine of two ranks on two GPUs in graphs,
// for developers who change the kernels. Received rows, ids and weights are compared with the sent data;
// `symmetra-bench moe` verifies every byte.
//   expert_direct_kernels EXPERTS TOP_K HIDDEN TOKENS [BLOCKS]        (rows of HIDDEN elements, a multiple of 512)
// Prints one line: microseconds of a dispatch that makes e4m3 codes of bf16, of a dispatch of given codes, of a
// combine, and of the latter two together.
#include <cstring>

#include "bench/expert_graphs.cuh"
#include "kernels/experts/pull.cuh"
#include "kernels/experts/push_by_source.cuh"

namespace {

using namespace symmetra::bench;
using namespace symmetra::kernels;

constexpr int kCalls = 10, kGraphs = 15;

/// The layer, and the layout of a rank's memory.
struct Plan {
  uint32_t experts, top_k, hidden, tokens;
  uint64_t scale_bytes, row_bytes, replicas_at, weights_at, header_bytes, rows_at, barrier_at, received_at, scales_at, ids_at,
      into_weights_at, results_at, bytes;

  Plan(uint32_t experts, uint32_t top_k, uint32_t hidden, uint32_t tokens)
      : experts(experts), top_k(top_k), hidden(hidden), tokens(tokens) {
    const uint64_t pairs = uint64_t{tokens} * top_k, rows = uint64_t{kWorld} * tokens;
    scale_bytes = hidden / kCodeGroup * 4;
    row_bytes = hidden + scale_bytes;
    replicas_at = up(sizeof(RoutingHeader) + 4 * (experts + kWorld), 16);
    weights_at = up(replicas_at + 2 * pairs, 16);
    header_bytes = up(weights_at + 4 * pairs, 256);
    rows_at = kWorld * header_bytes;
    barrier_at = up(rows_at + rows * row_bytes, 256);
    received_at = up(barrier_at + kStartFlagBytes + kVerdictBytes + kWorld * kMaxBlocks * 4, 256);
    scales_at = up(received_at + rows * hidden, 256);
    ids_at = up(scales_at + rows * scale_bytes, 256);
    into_weights_at = up(ids_at + kWorld * pairs * 4, 256);
    results_at = up(into_weights_at + kWorld * pairs * 4, 256);
    bytes = results_at + rows * hidden * 2;
  }
};

struct Rank {
  Place place;
  std::vector<int32_t> experts;
  std::vector<float> drawn_weights;
  std::vector<uint8_t> drawn_codes;
  uint8_t *memory, *rows, *codes, *output;
  uint32_t *table, *state, *places;
  int32_t* ids;
  float *weights, *scales;
  BlockState* calls;
  Progress* progress;
  Status* status;
};

Rank open(const Plan& plan, uint32_t number, std::mt19937& random) {
  Rank rank{};
  rank.place = Place(number, kWorld);
  rank.experts = drawn(plan.tokens, plan.experts, plan.top_k, random);
  for (size_t i = 0; i < rank.experts.size(); ++i) rank.drawn_weights.push_back(static_cast<float>(random() % 1000));
  const auto bytes = [&](uint64_t count) {
    std::vector<uint8_t> made(count);
    for (auto& byte : made) byte = static_cast<uint8_t>(random() % 0x70);  // numbers in all types
    return made;
  };
  const uint64_t elems = uint64_t{plan.tokens} * plan.hidden;
  rank.drawn_codes = bytes(elems);
  rank.memory = memory(plan.bytes);
  const std::vector<uint8_t> results = bytes(kWorld * elems * 2);
  check(cudaMemcpy(rank.memory + plan.results_at, results.data(), results.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  rank.rows = memory(bytes(elems * 2));
  rank.codes = memory(rank.drawn_codes);
  rank.scales = memory<float>(plan.tokens * plan.scale_bytes, 0x3C);
  rank.output = memory(elems * 2);
  rank.table = memory(table_of(plan.experts));
  rank.state = memory<uint32_t>((2 + plan.experts) * 4);
  rank.places = memory<uint32_t>(uint64_t{kWorld} * plan.tokens * (plan.top_k + 2) * 4);
  rank.ids = memory(rank.experts);
  rank.weights = memory(rank.drawn_weights);
  rank.calls = memory<BlockState>((kMaxBlocks + 1) * sizeof(BlockState));
  rank.progress = memory<Progress>(sizeof(Progress));
  check(cudaMallocHost(&rank.status, sizeof(Status)), "cudaMallocHost");
  std::memset(rank.status, 0, sizeof(Status));
  return rank;
}

/// The ranks, and most blocks of a kernel.
struct Group {
  Plan plan;
  std::vector<Rank> ranks;
  uint64_t blocks;

  /// Fills the fields that all kernels read.
  void fill(ExpertArgs& args, uint32_t number) const {
    const Rank& rank = ranks[number];
    args.wait = {rank.progress, rank.status, 2'000'000'000};
    args.calls = rank.calls;
    args.rank = number;
    args.world = kWorld;
    args.tokens = args.max_tokens = plan.tokens;
    args.top_k = plan.top_k;
    args.hidden = plan.hidden;
    args.layout = kRowsBySource;
    args.align = 1;
    args.experts = args.replicas = plan.experts;
    args.local = plan.experts / kWorld;
    args.first_replica = number * args.local;
    args.table = rank.table;
    args.headers = rank.memory;
    args.state = rank.state;
    args.places = rank.places;
    args.header_bytes = plan.header_bytes;
    args.replicas_offset = plan.replicas_at;
    args.weights_offset = plan.weights_at;
    args.capacity = uint64_t{kWorld} * plan.tokens;
  }
  ExpertPeers peers() const {
    ExpertPeers peers{plan.barrier_at, {}};
    for (uint32_t peer = 0; peer < kWorld; ++peer) peers.regions[peer] = ranks[peer].memory;
    return peers;
  }

  void dispatch(uint32_t number, bool given) const {
    const Rank& rank = ranks[number];
    PushArgs push{};
    fill(push, number);
    push.row_bytes = plan.row_bytes;
    push.scales_offset = push.payload_bytes = plan.hidden;
    push.wire = given ? kWireGivenF8 : kWireF8;
    push.dtype = kBF16;
    push.rows = {given ? rank.codes : rank.rows, rank.scales};
    push.routing = {rank.ids, rank.weights, nullptr, 4, 0};
    push.staged_offset = plan.rows_at;
    push.placed = {plan.received_at, plan.scales_at, plan.ids_at, plan.into_weights_at};
    push.peers = peers();
    if (given) {
      launch(expert_push_by_source<U8>, rank.place, push, plan.tokens, plan.row_bytes / 16, 1024, blocks);
    } else {
      launch(expert_push_by_source<BF16>, rank.place, push, plan.tokens, plan.row_bytes / 16, 1024, blocks);
    }
  }

  void combine(uint32_t number) const {
    const uint64_t packets = plan.hidden / 8, sharers = std::clamp<uint64_t>(128 / plan.tokens, 1, (packets + 127) / 128);
    const uint64_t of_part = up(packets, sharers) / sharers, rounds = up(of_part, kMostAheadThreads) / kMostAheadThreads;
    CombineDirectArgs pull{};
    fill(pull, number);
    pull.output = ranks[number].output;
    pull.part_bytes = plan.hidden * 2;
    pull.sharers = static_cast<uint32_t>(sharers);
    pull.dtype = kBF16;
    pull.task = kCombineReceive;
    pull.results_offset = plan.results_at;
    pull.peers = peers();
    launch(expert_pull<BF16>, ranks[number].place, pull, plan.tokens * sharers, up(of_part, rounds) / rounds, kMostAheadThreads, blocks);
  }

  /// Received rows, ids and weights of a rank that differ from those of a dispatch of given codes.
  uint64_t count_wrong(uint32_t number) const {
    const Rank& rank = ranks[number];
    const auto of_device = [&](auto* made, uint64_t at, uint64_t count) {
      check(cudaMemcpy(made, rank.memory + at, count * sizeof(*made), cudaMemcpyDeviceToHost), "cudaMemcpy");
    };
    const uint64_t pairs = uint64_t{plan.tokens} * plan.top_k;
    std::vector<uint8_t> rows(uint64_t{kWorld} * plan.tokens * plan.hidden);
    std::vector<int32_t> ids(kWorld * pairs);
    std::vector<float> weights(kWorld * pairs);
    of_device(rows.data(), plan.received_at, rows.size());
    of_device(ids.data(), plan.ids_at, ids.size());
    of_device(weights.data(), plan.into_weights_at, weights.size());
    uint64_t wrong = rank.status->code != kStatusOk;
    const uint32_t local = plan.experts / kWorld;
    for (uint32_t source = 0; source < kWorld; ++source) {
      for (uint32_t token = 0; token < plan.tokens; ++token) {
        bool comes = false;
        for (uint32_t k = 0; k < plan.top_k; ++k) {
          const uint64_t pair = uint64_t{token} * plan.top_k + k, at = source * pairs + pair;
          const uint32_t expert = static_cast<uint32_t>(ranks[source].experts[pair]) - number * local;
          const bool here = expert < local;
          comes |= here;
          wrong +=
              ids[at] != (here ? static_cast<int32_t>(expert) : -1) || weights[at] != (here ? ranks[source].drawn_weights[pair] : 0.0f);
        }
        const uint64_t row = uint64_t{source} * plan.tokens + token;
        const uint8_t* const sent = ranks[source].drawn_codes.data() + uint64_t{token} * plan.hidden;
        wrong += comes && std::memcmp(rows.data() + row * plan.hidden, sent, plan.hidden) != 0;
      }
    }
    return wrong;
  }
};

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, uint32_t otherwise) { return count > i ? static_cast<uint32_t>(std::atoi(arguments[i])) : otherwise; };
  const Plan plan(number(1, 0), number(2, 0), number(3, 0), number(4, 0));
  const bool fits = plan.top_k >= 1 && plan.top_k <= kMostTopK && plan.experts >= plan.top_k && plan.experts % kWorld == 0 &&
                    plan.hidden % 512 == 0 && plan.hidden > 0 && plan.tokens >= 1;
  if (!fits) {
    std::fprintf(stderr, "expert_direct_kernels EXPERTS TOP_K HIDDEN TOKENS [BLOCKS]: even experts, HIDDEN a multiple of 512\n");
    return 2;
  }
  std::mt19937 random(7);
  Group group{plan, {}, number(5, kMaxBlocks)};
  for (uint32_t rank = 0; rank < kWorld; ++rank) group.ranks.push_back(open(plan, rank, random));
  const auto place = [&](uint32_t rank) -> const Place& { return group.ranks[rank].place; };
  const auto timed = [&](auto enqueue) { return time(place, enqueue, kCalls, kGraphs); };
  const double codes_us = timed([&](uint32_t rank) { group.dispatch(rank, false); });
  const double given_us = timed([&](uint32_t rank) { group.dispatch(rank, true); });
  const double combine_us = timed([&](uint32_t rank) { group.combine(rank); });
  const double both_us = timed([&](uint32_t rank) { group.dispatch(rank, true), group.combine(rank); });
  uint64_t wrong = 0;
  for (uint32_t rank = 0; rank < kWorld; ++rank) wrong += group.count_wrong(rank);
  std::printf("%u tokens: dispatch %.1f us, of given codes %.1f us, combine %.1f us, both %.1f us, wrong %llu\n", plan.tokens, codes_us,
              given_us, combine_us, both_us, static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
