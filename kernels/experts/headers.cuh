// Routing headers, which ranks exchange before the rows: the number of tokens of a rank, and the expert replica of each
// pair of token and expert. Every rank computes all counts and places from the headers of all ranks, so ranks cannot
// disagree on them.
#pragma once
#include "kernels/geometry.hpp"
#include "kernels/scan.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// The replica of a pair without an expert, and of a pair with an invalid expert id.
constexpr uint16_t kNoReplica = 0xFFFF, kBadReplica = 0xFFFE;

/// The target of a pair: an expert replica, and its rank.
struct Target {
  uint16_t replica;
  uint16_t rank;  ///< kNoRank: no expert
};
constexpr uint16_t kNoRank = 0xFFFF;

/// Calls `body(rank)` with every rank. Ranks start at different peers, so that they do not all write to the same peer
/// at once.
template <class Body>
SYMMETRA_DEVICE void each_rank(const ExpertArgs& args, Body body) {
  SYMMETRA_ROLLED
  for (uint32_t k = 1; k <= args.world; ++k) body(args.rank + k < args.world ? args.rank + k : args.rank + k - args.world);
}

/// Whether a token has one row on a rank, instead of one row for each of its experts there.
SYMMETRA_DEVICE bool is_by_token(const ExpertArgs& args) { return (kLayoutsByToken >> args.layout & 1) != 0; }

/// The table of a group's experts from the view of this rank: the first replica of each rank; a word for each expert;
/// choices. Bits 20 to 24 of an expert's word are the number of replicas among which this rank chooses. If the number
/// is one, bits 0 to 15 are the replica and bits 16 to 19 its rank. Otherwise bits 0 to 15 are the index of the
/// expert's first choice. A choice has the replica and its rank in the same bits.
class ExpertTable {
 public:
  SYMMETRA_DEVICE explicit ExpertTable(const ExpertArgs& args) : ExpertTable(args, args.table + args.world + 1) {}
  /// With a copy of the expert words in other memory.
  SYMMETRA_DEVICE ExpertTable(const ExpertArgs& args, const uint32_t* words)
      : starts_(args.table),
        words_(words),
        choices_(starts_ + args.world + 1 + args.experts),
        rank_(args.rank),
        experts_(args.experts),
        top_k_(args.top_k) {}

  SYMMETRA_DEVICE bool has(int64_t expert) const { return expert >= 0 && expert < int64_t{experts_}; }

  /// The target of a pair of this rank. The token's number selects among the choices of its expert, in turn.
  SYMMETRA_DEVICE Target target(int64_t expert, uint32_t pair) const {
    if (!has(expert)) return {kNoReplica, kNoRank};
    uint32_t word = words_[expert];
    const uint32_t count = word >> 20;
    if (count > 1) word = choices_[(word & 0xFFFF) + (rank_ + pair / top_k_) % count];
    return {static_cast<uint16_t>(word), static_cast<uint16_t>(word >> 16 & 0xF)};
  }

  SYMMETRA_DEVICE uint32_t first_replica(uint32_t rank) const { return starts_[rank]; }
  SYMMETRA_DEVICE uint32_t rank_of(uint16_t replica) const {
    uint32_t rank = 0;
    while (replica >= starts_[rank + 1]) ++rank;
    return rank;
  }

 private:
  const uint32_t* starts_;
  const uint32_t* words_;
  const uint32_t* choices_;
  uint32_t rank_;
  uint32_t experts_;
  uint32_t top_k_;
};

/// The routing headers of all ranks.
class Headers {
 public:
  SYMMETRA_DEVICE explicit Headers(const ExpertArgs& args) : args_(args) {}

  SYMMETRA_DEVICE RoutingHeader* header(uint32_t rank) const { return reinterpret_cast<RoutingHeader*>(at(rank)); }
  SYMMETRA_DEVICE uint32_t tokens(uint32_t rank) const { return header(rank)->tokens; }
  /// Pair counts of all expert replicas, followed by token counts of all ranks.
  SYMMETRA_DEVICE uint32_t* counts(uint32_t rank) const { return reinterpret_cast<uint32_t*>(at(rank) + sizeof(RoutingHeader)); }
  SYMMETRA_DEVICE uint32_t to_replica(uint32_t rank, uint32_t replica) const { return counts(rank)[replica]; }
  SYMMETRA_DEVICE uint32_t to_rank(uint32_t rank, uint32_t target) const { return counts(rank)[args_.replicas + target]; }
  SYMMETRA_DEVICE uint16_t* replicas(uint32_t rank) const { return reinterpret_cast<uint16_t*>(at(rank) + args_.replicas_offset); }
  SYMMETRA_DEVICE float* weights(uint32_t rank) const { return reinterpret_cast<float*>(at(rank) + args_.weights_offset); }

  /// Whether an expert replica is on this rank. `replica` becomes its local number.
  SYMMETRA_DEVICE bool is_here(uint32_t& replica) const {
    replica -= args_.first_replica;
    return replica < args_.local;
  }

 private:
  SYMMETRA_DEVICE uint8_t* at(uint32_t rank) const { return args_.headers + rank * args_.header_bytes; }

  const ExpertArgs& args_;
};

/// The first thread of the first block reports the error to the host. Returns true, on all threads.
SYMMETRA_DEVICE bool reports(const ExpertArgs& args, uint32_t code, uint32_t peer, uint64_t first, uint64_t second) {
  if (platform::block() == 0 && platform::thread() == 0) device::report(args.wait, code, kOpDispatch, peer, 0, first, second);
  return true;
}

/// Validates the routing headers in the same order on all ranks, and reports the first error. `word(source, i)`: word
/// `i` of the fixed part of a rank's header.
template <class Word>
SYMMETRA_DEVICE bool reports_headers(const ExpertArgs& args, Word word) {
  SYMMETRA_ROLLED
  for (uint32_t source = 0; source < args.world; ++source) {
    const uint32_t claimed = word(source, 1), room = word(source, 2), token = word(source, 3);
    if (claimed > room) return reports(args, kStatusCapacity, source, claimed, room | kTokensAsked);
    const uint64_t expert = uint64_t{word(source, 5)} << 32 | word(source, 4);
    if (token != kNone) return reports(args, kStatusRouting, source, uint64_t{args.experts} << 32 | token, expert);
  }
  return false;
}

/// The state of the local experts of this rank, in device memory of this rank.
struct ExpertState {
  uint32_t* words;
  uint32_t local;

  SYMMETRA_DEVICE explicit ExpertState(const ExpertArgs& args) : words(args.state), local(args.local) {}
  /// Nonzero: rows have no places.
  SYMMETRA_DEVICE uint32_t& failed() const { return words[0]; }
  /// Received rows, including the padding of alignment.
  SYMMETRA_DEVICE uint32_t& rows() const { return words[1]; }
  SYMMETRA_DEVICE uint32_t& count(uint32_t expert) const { return words[2 + expert]; }
  SYMMETRA_DEVICE uint32_t& offset(uint32_t expert) const { return words[2 + local + expert]; }
};

/// The caller's routing: the experts of this rank's tokens.
class Asked {
 public:
  /// Called after platform::wait_prior.
  SYMMETRA_DEVICE Asked(const ExpertArgs& args, const ExpertRouting& routing) : Asked(args, routing, ExpertTable(args)) {}
  SYMMETRA_DEVICE Asked(const ExpertArgs& args, const ExpertRouting& routing, const ExpertTable& table)
      : args_(args),
        routing_(routing),
        table_(table),
        claimed_(routing.token_count != nullptr ? platform::load<uint32_t>(routing.token_count) : args.tokens) {}

  /// The number of tokens, from device memory or from the host. Another stream may write the device count concurrently,
  /// so threads may have read different counts. Where threads branch before a sync, they continue with the count that
  /// one of them has read (`claim`).
  SYMMETRA_DEVICE uint32_t claimed() const { return claimed_; }
  SYMMETRA_DEVICE void claim(uint32_t claimed) { claimed_ = claimed; }
  /// Tokens that take part. Using the value waits for the load of the device count.
  SYMMETRA_DEVICE uint32_t tokens() const { return claimed_ <= args_.tokens ? claimed_ : 0; }
  SYMMETRA_DEVICE uint32_t pairs() const { return tokens() * args_.top_k; }
  SYMMETRA_DEVICE int64_t expert(uint32_t pair) const {
    const auto* const ids = static_cast<const uint8_t*>(routing_.ids);
    return routing_.id_bytes == 8 ? platform::load<int64_t>(ids + uint64_t{pair} * 8)
                                  : int64_t{platform::load<int32_t>(ids + uint64_t{pair} * 4)};
  }
  SYMMETRA_DEVICE bool is_bad(uint32_t pair) const { return is_bad(expert(pair)); }
  SYMMETRA_DEVICE bool is_bad(int64_t expert) const { return expert != -1 && !table_.has(expert); }
  SYMMETRA_DEVICE Target target(uint32_t pair) const { return target(pair, expert(pair)); }
  SYMMETRA_DEVICE Target target(uint32_t pair, int64_t expert) const { return table_.target(expert, pair); }
  SYMMETRA_DEVICE uint16_t replica(uint32_t pair) const { return target(pair).replica; }
  /// The fixed part of the routing header. All threads of the block call it. `bad`: whether any thread found a bad
  /// pair. `first_bad`: the first bad pair of this thread, or kNone.
  SYMMETRA_DEVICE RoutingHeader header(bool bad, uint32_t first_bad, uint32_t* words) const {
    if (!bad) return {tokens(), claimed_, args_.tokens, kNone, 0, claimed_ > args_.tokens, 0};
    const uint32_t pair = kNone - block_max(kNone - first_bad, words);  // counted from the end, so that the first is the largest
    return {0, claimed_, args_.tokens, pair / args_.top_k, expert(pair), 1, 0};
  }

 private:
  const ExpertArgs& args_;
  const ExpertRouting& routing_;
  ExpertTable table_;
  uint32_t claimed_;
};

/// Calls `body(pair, replica)` with each pair of a group of eight that lies between `begin` and `end`. Headers have
/// capacity for whole groups.
template <class Body>
SYMMETRA_DEVICE void each_of_eight(const uint16_t* replicas, uint32_t eight, uint32_t begin, uint32_t end, Body body) {
  const auto words = platform::load<Words<4>>(reinterpret_cast<const uint8_t*>(replicas) + uint64_t{eight} * sizeof(Words<4>));
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t pair = eight * 8 + i;
    if (pair >= begin && pair < end) body(pair, words.word[i / 2] >> (i % 2 * 16) & 0xFFFF);
  }
}

/// Calls `body(pair, replica)` with this thread's share of the pairs of a rank, in any order: neighbouring threads load
/// adjacent memory.
template <class Body>
SYMMETRA_DEVICE void each_pair(const uint16_t* replicas, uint32_t pairs, Body body) {
  for (uint32_t eight = platform::thread(); eight * 8 < pairs; eight += platform::threads()) each_of_eight(replicas, eight, 0, pairs, body);
}

/// Whether a token has an expert among the replicas from `first` to `end`.
SYMMETRA_DEVICE bool goes(const uint16_t* replicas, uint32_t token, uint32_t top_k, uint32_t first, uint32_t end) {
  const uint32_t pairs = token * top_k;
  bool found = false;
  for (uint32_t eight = pairs / 8; eight * 8 < pairs + top_k; ++eight) {
    each_of_eight(replicas, eight, pairs, pairs + top_k, [&](uint32_t, uint32_t replica) { found |= replica >= first && replica < end; });
  }
  return found;
}

/// The caller's routing, with the token count that expert_header has stored: a count that changes between two reads would
/// assign rows to places that were not counted.
SYMMETRA_DEVICE Asked kept_asked(const RouteArgs& args) {
  Asked asked(args, args.routing);
  if (args.routing.token_count != nullptr) asked.claim(Headers(args).header(args.rank)->claimed);
  return asked;
}

/// Writes the pairs of the own routing header, from the caller's routing. One thread stores the token count for the
/// following kernels.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_header(SYMMETRA_ARGS(RouteArgs) args) {
  const Headers headers(args);
  platform::wait_prior();
  const Asked asked(args, args.routing);
  const uint32_t step = platform::blocks() * platform::threads();
  for (uint32_t pair = platform::block() * platform::threads() + platform::thread(); pair < asked.pairs(); pair += step) {
    const int64_t expert = asked.expert(pair);
    headers.replicas(args.rank)[pair] = asked.is_bad(expert) ? kBadReplica : asked.target(pair, expert).replica;
    headers.weights(args.rank)[pair] = args.routing.weights != nullptr ? args.routing.weights[pair] : 1.0f;
  }
  if (platform::block() == 0 && platform::thread() == 0) headers.header(args.rank)->claimed = asked.claimed();
  platform::release_next();
}

/// Writes the fixed part of the own routing header, from its pairs. All threads of the block call it. `words`: in
/// block-shared memory.
SYMMETRA_DEVICE void judge_pairs(const ExpertArgs& args, const Asked& asked, uint32_t* words) {
  const Headers headers(args);
  uint32_t first_bad = kNone;
  each_pair(headers.replicas(args.rank), asked.pairs(), [&](uint32_t pair, uint32_t replica) {
    if (replica == kBadReplica && pair < first_bad) first_bad = pair;
  });
  const RoutingHeader header = asked.header(platform::sync_block_or(first_bad != kNone), first_bad, words);
  if (platform::thread() != 0) return;
  // The count is there already, and other blocks read it.
  RoutingHeader* const own = headers.header(args.rank);
  own->tokens = header.tokens;
  own->room = header.room;
  own->bad_token = header.bad_token;
  own->bad_expert = header.bad_expert;
  own->wrong = header.wrong;
}

/// Writes the rest of the own routing header, from its pairs. A block counts the pairs of a replica, counts the tokens
/// for a rank, or looks for errors.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_tally(SYMMETRA_ARGS(RouteArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  const ExpertTable table(args);
  const Headers headers(args);
  platform::wait_prior();
  const Asked asked = kept_asked(args);
  const uint16_t* const replicas = headers.replicas(args.rank);
  const uint32_t pairs = asked.pairs();
  for (uint32_t unit = platform::block(); unit <= args.replicas + args.world; unit += platform::blocks()) {
    uint32_t* const count = headers.counts(args.rank) + unit;
    if (unit < args.replicas) {
      uint32_t mine = 0;
      each_pair(replicas, pairs, [&](uint32_t, uint32_t replica) { mine += replica == unit; });
      const uint32_t all = block_sum(mine, words);
      if (platform::thread() == 0) *count = all;
    } else if (unit < args.replicas + args.world) {
      const uint32_t first = table.first_replica(unit - args.replicas), end = table.first_replica(unit - args.replicas + 1);
      uint32_t mine = 0;
      for (uint32_t token = platform::thread(); token < asked.tokens(); token += platform::threads()) {
        mine += goes(replicas, token, args.top_k, first, end);
      }
      const uint32_t all = block_sum(mine, words);
      if (platform::thread() == 0) *count = all;
    } else {
      judge_pairs(args, asked, words);
    }
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
