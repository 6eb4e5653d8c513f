// A dispatch by direct access, by source, in one kernel: no place depends on the headers of other ranks, so pairs are
// sent together with the rows.
#pragma once
#include "kernels/experts/push.cuh"

namespace symmetra::kernels {

/// The own pairs: the caller's routing, or, in another dispatch of the same routing, the pairs of the own routing
/// header.
class OwnPairs {
 public:
  /// `claimed`: a word in block-shared memory. A sync and `meet` must follow.
  SYMMETRA_DEVICE OwnPairs(const PushArgs& args, uint32_t* claimed)
      : args_(args), asked_(args, args.routing), table_(args), headers_(args), claimed_(claimed), again_(args.again != 0) {
    const uint32_t before = again_ ? headers_.tokens(args.rank) : 0;
    tokens_ = !again_ ? asked_.tokens() : before < args.tokens ? before : args.tokens;
    if (platform::thread() == 0) *claimed_ = asked_.claimed();
  }

  /// All threads continue with the count that the first thread has read.
  SYMMETRA_DEVICE void meet() {
    asked_.claim(*claimed_);
    if (!again_) tokens_ = asked_.tokens();
  }

  SYMMETRA_DEVICE uint32_t tokens() const { return tokens_; }
  SYMMETRA_DEVICE uint32_t rank(uint32_t pair) const {
    if (!again_) return asked_.target(pair).rank;
    const uint16_t replica = headers_.replicas(args_.rank)[pair];
    return replica == kNoReplica ? uint32_t{kNoRank} : table_.rank_of(replica);
  }

  /// Called by the flag blocks, each of which validates some of the pairs. Writes this block's error to `verdict`.
  /// Returns true on all threads if there is an error. `words`: in block-shared memory.
  SYMMETRA_DEVICE bool judge(RoutingHeader* verdict, uint32_t* words) {
    if (again_) return false;
    const uint32_t first_bad = find_bad();
    const bool bad = platform::sync_block_or(first_bad != kNone);
    meet();
    const RoutingHeader header = asked_.header(bad, first_bad, words);
    if (header.wrong == 0) return false;
    if (platform::thread() == 0) *verdict = header;
    platform::sync_block();  // other threads announce the verdict
    return true;
  }

  /// Writes the pairs to the routing headers of all ranks, and the expert ids and weights to received rows that peers
  /// address, eight pairs at once: each block takes a consecutive share, by its last threads. Padding rows are also
  /// written.
  SYMMETRA_DEVICE void share() const {
    const bool places = args_.placed.ids != kStaged || args_.placed.weights != kStaged;
    const uint32_t pairs = (places ? args_.max_tokens : tokens_) * args_.top_k;
    const uint32_t eights = (pairs + 7) / 8, each = (eights + platform::blocks() - 1) / platform::blocks();
    const uint32_t begin = platform::block() * each, end = begin + each < eights ? begin + each : eights;
    const uint32_t from_end = platform::threads() - 1 - platform::thread();
    SYMMETRA_ROLLED
    for (uint32_t eight = begin + from_end; eight < end; eight += platform::threads()) {
      const Eight its(*this, eight);
      // Peers that received experts and weights of rows directly may not have the weights in their headers.
      const bool has_headers = again_ && places;
      if (!has_headers && eight * 8 < tokens_ * args_.top_k) to_headers(eight, its, !places);
      if (places) to_rows(eight, its);
    }
  }

  /// Stores the number of own tokens, even if the call fails before it sends rows. One block.
  SYMMETRA_DEVICE void keep() const {
    if (!again_ && platform::thread() == 0) headers_.header(args_.rank)->tokens = tokens_;
  }
  /// Sends the number of own tokens to all other ranks. One block.
  SYMMETRA_DEVICE void send_count() const {
    for (uint32_t rank = platform::thread(); rank < args_.world; rank += platform::threads()) {
      if (rank != args_.rank) platform::store(&headers_.header(args_.rank)->tokens + words_to(rank), tokens_);
    }
  }

 private:
  /// Packets of ids that a thread loads at once.
  static constexpr uint32_t kAhead = platform::kTeam == 1 ? 1 : 4;

  /// Eight consecutive pairs: expert replicas, 16 bits each, and weights.
  struct Eight {
    Words<4> replicas, weights[2];

    SYMMETRA_DEVICE Eight(const OwnPairs& pairs, uint32_t eight) {
      const PushArgs& args = pairs.args_;
      replicas = {{kNone, kNone, kNone, kNone}};
      weights[0] = weights[1] = {};
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t pair = eight * 8 + i;
        if (pair >= pairs.tokens_ * args.top_k) continue;
        const uint32_t replica = pairs.again_ ? pairs.headers_.replicas(args.rank)[pair] : pairs.asked_.replica(pair);
        const float* const asked = pairs.again_ ? pairs.headers_.weights(args.rank) : args.routing.weights;
        replicas.word[i / 2] ^= (replica ^ 0xFFFF) << i % 2 * 16;
        weights[i / 4].word[i % 4] = platform::bits_of(asked != nullptr ? asked[pair] : 1.0f);
      }
    }
  };

  /// The first pair of this thread's share with an invalid expert id; kNone: there is none. Each flag block takes a
  /// consecutive share.
  SYMMETRA_DEVICE uint32_t find_bad() const {
    const uint32_t pairs = asked_.pairs(), threads = platform::threads(), each = 16 / args_.routing.id_bytes;
    const uint32_t share = ((pairs + each - 1) / each + GridBarrier::flag_blocks() - 1) / GridBarrier::flag_blocks() * each;
    const uint32_t begin = platform::block() * share < pairs ? platform::block() * share : pairs;
    const uint32_t end = begin + share < pairs ? begin + share : pairs;
    const auto* const ids = static_cast<const uint8_t*>(args_.routing.ids) + uint64_t{begin} * args_.routing.id_bytes;
    uint32_t first_bad = kNone;
    const auto judge = [&](uint32_t pair, int64_t expert) {
      if (pair < first_bad && asked_.is_bad(expert)) first_bad = pair;
    };
    const uint32_t packets = reinterpret_cast<uintptr_t>(ids) % 16 == 0 ? (end - begin) / each : 0;
    SYMMETRA_ROLLED
    for (uint32_t first = platform::thread(); first < packets; first += kAhead * threads) {
      Words<4> loaded[kAhead];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (first + i * threads < packets) loaded[i] = platform::load<Words<4>>(ids + uint64_t{first + i * threads} * 16);
      }
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t pair = begin + (first + i * threads) * each;
        if (first + i * threads >= packets) continue;
        SYMMETRA_UNROLL
        for (uint32_t word = 0; word < 4; ++word) {
          if (each == 4) judge(pair + word, static_cast<int32_t>(loaded[i].word[word]));
          if (each == 2 && word % 2 == 0) {
            judge(pair + word / 2, static_cast<int64_t>(uint64_t{loaded[i].word[word + 1]} << 32 | loaded[i].word[word]));
          }
        }
      }
    }
    for (uint32_t pair = begin + packets * each + platform::thread(); pair < end; pair += threads) judge(pair, asked_.expert(pair));
    return first_bad;
  }

  /// The distance in words from the own routing headers to those of a rank.
  SYMMETRA_DEVICE int64_t words_to(uint32_t rank) const {
    return (reinterpret_cast<intptr_t>(args_.peers.regions[rank]) - reinterpret_cast<intptr_t>(args_.peers.regions[args_.rank])) / 4;
  }

  /// Writes eight pairs to the headers of all ranks. `weighs`: peers also need the weights.
  SYMMETRA_DEVICE void to_headers(uint32_t eight, const Eight& its, bool weighs) const {
    auto* const replicas = reinterpret_cast<uint32_t*>(headers_.replicas(args_.rank)) + eight * 4;
    auto* const weights = reinterpret_cast<uint32_t*>(headers_.weights(args_.rank)) + eight * 8;
    each_rank(args_, [&](uint32_t rank) {
      const int64_t away = words_to(rank);
      platform::store(replicas + away, its.replicas);
      if (rank != args_.rank && !weighs) return;
      platform::store(weights + away, its.weights[0]);
      if (eight * 8 + 4 < tokens_ * args_.top_k) platform::store(weights + away + 4, its.weights[1]);
    });
  }

  /// Writes the metadata of eight pairs for the received rows of each rank: local expert ids, or -1 for experts of
  /// other ranks.
  SYMMETRA_DEVICE void to_rows(uint32_t eight, const Eight& its) const {
    const uint32_t pairs = args_.max_tokens * args_.top_k;
    const uint64_t first = uint64_t{args_.rank} * pairs;
    each_rank(args_, [&](uint32_t rank) {
      const uint32_t begin = table_.first_replica(rank), local = table_.first_replica(rank + 1) - begin;
      const Row<F32> ids(in_reach(args_.peers, rank, args_.placed.ids), first, pairs);
      const Row<F32> weights(in_reach(args_.peers, rank, args_.placed.weights), first, pairs);
      SYMMETRA_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        if (eight * 8 + half * 4 >= pairs) continue;
        Words<4> experts{}, theirs{};
        SYMMETRA_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t expert = (its.replicas.word[half * 2 + i / 2] >> i % 2 * 16 & 0xFFFF) - begin;
          experts.word[i] = expert < local ? expert : kNone;
          theirs.word[i] = expert < local ? its.weights[half].word[i] : 0;
        }
        if (args_.placed.ids != kStaged) ids.store(eight * 2 + half, experts);
        if (args_.placed.weights != kStaged) weights.store(eight * 2 + half, theirs);
      }
    });
  }

  const PushArgs& args_;
  Asked asked_;
  ExpertTable table_;
  Headers headers_;
  uint32_t* claimed_;
  bool again_;  ///< another dispatch of the same routing
  uint32_t tokens_;
};

/// Called by one block: stores whether the dispatch failed, and reports the first error in the pairs of a rank, which
/// is read in the memory of that rank. All ranks find the same error. `entered`: whether the entry barrier succeeded.
SYMMETRA_DEVICE void judge_ranks(const ExpertArgs& args, const GridBarrier& barrier, bool entered) {
  if (platform::thread() != 0) return;
  const ExpertState state(args);
  state.failed() = !entered || barrier.is_wrong();
  state.rows() = static_cast<uint32_t>(args.capacity);
  if (!entered || !barrier.is_wrong()) return;
  reports_headers(args, [&](uint32_t source, uint32_t i) -> uint32_t {
    const uint32_t flag_block = barrier.wrong_block(source);
    if (flag_block == kStartFlagBlocks) return i == 3 ? kNone : 0;
    return platform::load<uint32_t>(reinterpret_cast<const uint8_t*>(barrier.verdict(source, flag_block)) + i * 4);
  });
}

/// Writes the own rows to the places of their source and tokens on the ranks of their experts, and their pairs to all
/// ranks, between two barriers: none if a rank found an error. A block takes a token, and already knows its next token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_push_by_source(SYMMETRA_ARGS(PushArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  uint32_t* const lists = words + 2 * kMaxWorld;
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  GridBarrier barrier(args, args.peers, kOpDispatch, call, words);
  Turns turns(args, call, args.tokens, words + kMaxWorld);
  static_assert(Turns::kWords < kMaxWorld);
  OwnPairs pairs(args, words + kMaxWorld + Turns::kWords);
  if (platform::block() == 0) pairs.keep();
  barrier.begin(true, platform::block() < GridBarrier::flag_blocks() && pairs.judge(barrier.verdict(args.rank, platform::block()), lists));
  platform::sync_block();  // the lists are free, and the turn and the count are known
  pairs.meet();
  // Lists alternate between tokens.
  uint32_t token = turns.unit(), list = 0;
  const auto find = [&](uint32_t its) {
    TokenRanks(args, lists + list * kMostTopK).begin([&](uint32_t k) { return pairs.rank(its * args.top_k + k); });
  };
  RowStream<Element> stream(args, args.rows);
  if (token < pairs.tokens()) {
    find(token);
    stream.begin(token);
  }
  turns.ask();
  const bool entered = barrier.enter();
  if (entered && !barrier.is_wrong()) {
    if (platform::block() == 0) pairs.send_count();
    pairs.share();
    SYMMETRA_ROLLED
    while (token < pairs.tokens()) {
      TokenRanks ranks(args, lists + list * kMostTopK);
      ranks.meet();
      const uint32_t next = turns.unit();
      const bool has_next = next < pairs.tokens();
      list ^= 1;
      if (has_next) find(next);
      turns.ask();
      const uint32_t place = args.rank * args.max_tokens + token;
      stream.send(token, has_next ? next : kNone, TheirRows(args, token, ranks.bits(), [&](uint32_t) { return place; }));
      for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
        Places(args).there[uint64_t{rank} * args.max_tokens + token] = ranks.has(rank) ? place : kNone;
      }
      token = next;
    }
  }
  if (platform::block() == 0) judge_ranks(args, barrier, entered);
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
