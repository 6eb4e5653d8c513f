// Computes the place of every row from the routing headers of all ranks: first counts, then a place for each pair of a
// token and a local expert. The order is a function of the headers only.
#pragma once
#include "kernels/experts/headers.cuh"

namespace symmetra::kernels {

/// The place of each pair and each token of all ranks among the rows of this rank, and of each own token among the rows
/// of a rank.
struct Places {
  uint32_t* pairs;
  uint32_t* tokens;  ///< [source][max_tokens]; kNone: the token has no expert here
  uint32_t* there;   ///< [target][max_tokens]; kNone: the own token has no expert there

  SYMMETRA_DEVICE explicit Places(const ExpertArgs& args)
      : pairs(args.places),
        tokens(pairs + uint64_t{args.world} * args.max_tokens * args.top_k),
        there(tokens + uint64_t{args.world} * args.max_tokens) {}
};

/// Rows of an expert with `pairs` pairs, as counted against the capacity.
SYMMETRA_DEVICE uint32_t aligned_rows(const ExpertArgs& args, uint32_t pairs) {
  if (args.layout != kRowsByExpert) return pairs;
  return (pairs + args.align - 1) / args.align * args.align;
}

/// Pairs of an expert replica, from all ranks.
SYMMETRA_DEVICE uint32_t pairs_of(const ExpertArgs& args, const Headers& headers, uint32_t replica) {
  uint32_t pairs = 0;
  for (uint32_t source = 0; source < args.world; ++source) pairs += headers.to_replica(source, replica);
  return pairs;
}

/// The rows that a rank would receive, as counted against the capacity; with equal capacity for every expert, the rows
/// of its largest expert. All threads of the block get the value.
SYMMETRA_DEVICE uint32_t rows_of(const ExpertArgs& args, const Headers& headers, uint32_t rank, uint32_t* words) {
  if (args.layout == kRowsBySource) return 0;  // the capacity holds all rows
  if (args.layout == kRowsByRank) {
    uint32_t rows = 0;
    for (uint32_t source = 0; source < args.world; ++source) rows += headers.to_rank(source, rank);
    return rows;
  }
  const ExpertTable table(args);
  uint32_t all = 0, most = 0;
  for (uint32_t replica = table.first_replica(rank) + platform::thread(); replica < table.first_replica(rank + 1);
       replica += platform::threads()) {
    const uint32_t pairs = pairs_of(args, headers, replica);
    all += aligned_rows(args, pairs);
    most = pairs > most ? pairs : most;
  }
  return args.layout == kRowsPadded ? block_max(most, words) : block_sum(all, words);
}

/// Reports the first error in the routing headers, or the first rank that would exceed its capacity. All ranks find the
/// same error.
SYMMETRA_DEVICE bool is_wrong(const ExpertArgs& args, const Headers& headers, uint32_t* words) {
  const auto word = [&](uint32_t source, uint32_t i) {
    return platform::load<uint32_t>(reinterpret_cast<const uint8_t*>(headers.header(source)) + i * 4);
  };
  if (reports_headers(args, word)) return true;
  for (uint32_t rank = 0; rank < args.world; ++rank) {
    const uint32_t rows = rows_of(args, headers, rank, words);
    if (rows > args.capacity) return reports(args, kStatusCapacity, rank, rows, args.capacity);
  }
  return false;
}

/// Counts the rows of the local experts. One block.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_count(SYMMETRA_ARGS(RouteArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  const Headers headers(args);
  const ExpertState state(args);
  platform::wait_prior();
  const bool wrong = is_wrong(args, headers, words);
  if (platform::thread() == 0) state.failed() = wrong;
  if (!wrong && args.layout == kRowsBySource) {
    if (platform::thread() == 0) state.rows() = static_cast<uint32_t>(args.capacity);
  } else if (!wrong) {
    const Run run(args.local);
    uint32_t mine = 0;
    for (uint32_t expert = run.begin; expert < run.end; ++expert)
      mine += aligned_rows(args, pairs_of(args, headers, args.first_replica + expert));
    const uint32_t rows_here[1] = {mine};
    const Scanned<1> scanned = block_scan(rows_here, words);
    uint32_t offset = scanned.before[0];
    for (uint32_t expert = run.begin; expert < run.end; ++expert) {
      const uint32_t pairs = pairs_of(args, headers, args.first_replica + expert);
      state.count(expert) = pairs;
      state.offset(expert) = args.layout == kRowsPadded ? expert * static_cast<uint32_t>(args.capacity) : offset;
      if (args.counts.rows != nullptr) args.counts.rows[expert] = pairs;
      if (args.counts.offsets != nullptr) args.counts.offsets[expert] = state.offset(expert);
      offset += aligned_rows(args, pairs);
    }
    const uint32_t end = args.layout == kRowsPadded ? args.local * static_cast<uint32_t>(args.capacity) : scanned.all[0];
    const uint32_t rows = args.layout == kRowsByRank ? rows_of(args, headers, args.rank, words) : end;
    if (platform::thread() == 0) {
      state.rows() = rows;
      if (args.counts.offsets != nullptr) args.counts.offsets[args.local] = end;
    }
  }
  platform::release_next();
}

/// By source, the place of a token of a rank among the rows of a rank; kNone: the token has no expert there.
SYMMETRA_DEVICE uint32_t place_by_source(const ExpertArgs& args, const Headers& headers, uint32_t source, uint32_t token, uint32_t target) {
  const ExpertTable table(args);
  const bool there = goes(headers.replicas(source), token, args.top_k, table.first_replica(target), table.first_replica(target + 1));
  return there ? source * args.max_tokens + token : kNone;
}

/// The place of a token of a rank among the rows of this rank, for layouts with one row for each token; kNone: the
/// token has no expert here. By source, no earlier kernel has computed places.
SYMMETRA_DEVICE uint32_t place_of(const ExpertArgs& args, const Headers& headers, uint32_t source, uint32_t token) {
  if (args.layout == kRowsBySource) return place_by_source(args, headers, source, token, args.rank);
  return Places(args).tokens[uint64_t{source} * args.max_tokens + token];
}

/// By source, writes the rest of the own routing header from its pairs. Nothing is counted. One block.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_tally_by_source(SYMMETRA_ARGS(RouteArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  if (platform::block() == 0) judge_pairs(args, kept_asked(args), words);
  platform::release_next();
}

/// Computes the places of the tokens of rank `source` among the rows of rank `target`.
SYMMETRA_DEVICE void place_tokens(const ExpertArgs& args, const Headers& headers, uint32_t source, uint32_t target, uint32_t* into,
                                  uint32_t* words) {
  const ExpertTable table(args);
  const uint32_t first = table.first_replica(target), end = table.first_replica(target + 1);
  uint32_t before = 0;
  for (uint32_t earlier = 0; earlier < source; ++earlier) before += headers.to_rank(earlier, target);
  const uint32_t tokens = headers.tokens(source);
  // One token for each thread at a time: neighbouring threads load adjacent memory.
  for (uint32_t begin = 0; begin < tokens; begin += platform::threads()) {
    const uint32_t token = begin + platform::thread();
    const uint32_t comes[1] = {token < tokens && goes(headers.replicas(source), token, args.top_k, first, end)};
    const Scanned<1> scanned = block_scan(comes, words);
    if (token < tokens) into[token] = comes[0] != 0 ? before + scanned.before[0] : kNone;
    before += scanned.all[0];
  }
}

/// Computes places. A block walks the pairs of one rank for one local expert, the tokens of one rank for this rank, or
/// the tokens of this rank for another rank. By rank, places of pairs are needed for the index only.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_place(SYMMETRA_ARGS(RouteArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  const Headers headers(args);
  const ExpertState state(args);
  const Places places(args);
  platform::wait_prior();
  const uint32_t experts = args.pair_places != 0 ? args.local : 0;
  const uint32_t units = state.failed() != 0 ? 0 : (2 + experts) * args.world;
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    const uint32_t task = unit / args.world, other = unit % args.world;
    if (task == 0) {
      place_tokens(args, headers, other, args.rank, places.tokens + uint64_t{other} * args.max_tokens, words);
      continue;
    }
    if (task == 1) {
      place_tokens(args, headers, args.rank, other, places.there + uint64_t{other} * args.max_tokens, words);
      continue;
    }
    const uint32_t expert = task - 2, replica = args.first_replica + expert;
    uint32_t before = state.offset(expert);
    for (uint32_t earlier = 0; earlier < other; ++earlier) before += headers.to_replica(earlier, replica);
    const uint16_t* const replicas = headers.replicas(other);
    const uint32_t pairs = headers.tokens(other) * args.top_k;
    const Run eights((pairs + 7) / 8);
    uint32_t mine = 0;
    for (uint32_t eight = eights.begin; eight < eights.end; ++eight) {
      each_of_eight(replicas, eight, 0, pairs, [&](uint32_t, uint32_t its) { mine += its == replica; });
    }
    uint32_t place = before + block_before(mine, words);
    uint32_t* const into = places.pairs + uint64_t{other} * args.max_tokens * args.top_k;
    for (uint32_t eight = eights.begin; eight < eights.end && mine != 0; ++eight) {
      each_of_eight(replicas, eight, 0, pairs, [&](uint32_t pair, uint32_t its) {
        if (its == replica) into[pair] = place++;
      });
    }
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
