// A dispatch by direct access by source, in one kernel: no place depends on what other ranks send, so pairs travel with the rows.
#pragma once
#include "kernels/experts/push.cuh"

namespace symmetra::kernels {

/// The own pairs: what the caller asks for, or in another dispatch of a routing what the own head has.
class OwnPairs {
 public:
  SYMMETRA_DEVICE explicit OwnPairs(const ExpertArgs& args)
      : args_(args), asked_(args), table_(args), heads_(args), again_(args.follows != 0) {
    tokens_ = again_ ? heads_.tokens(args.rank) : asked_.tokens();
  }

  SYMMETRA_DEVICE uint32_t tokens() const { return tokens_; }
  SYMMETRA_DEVICE uint32_t rank(uint32_t pair) const {
    if (!again_) return asked_.target(pair).rank;
    const uint16_t copy = heads_.copies(args_.rank)[pair];
    return copy == kNoCopy ? uint32_t{kNoRank} : table_.rank_of(copy);
  }

  /// By the first block: writes what the own head begins with. True on all threads: something is wrong. `words`: of block-shared
  /// memory.
  SYMMETRA_DEVICE bool judge(uint32_t* words) const {
    if (again_) return false;
    const uint32_t first_bad = find_bad();
    const ExpertHead head = asked_.head(platform::sync_block_or(first_bad != kNone), first_bad, words);
    if (platform::thread() == 0) *heads_.head(args_.rank) = head;
    if (head.wrong != 0) platform::sync_block();  // other threads tell of it
    return head.wrong != 0;
  }

  /// Writes the pairs to all ranks, eight at once: a block takes some that follow each other, by its last threads.
  SYMMETRA_DEVICE void share() const {
    if (again_) return;
    const uint32_t eights = (tokens_ * args_.top_k + 7) / 8, each = (eights + platform::blocks() - 1) / platform::blocks();
    const uint32_t begin = platform::block() * each, end = begin + each < eights ? begin + each : eights;
    const uint32_t from_end = platform::threads() - 1 - platform::thread();
    SYMMETRA_ROLLED
    for (uint32_t eight = begin + from_end; eight < end; eight += platform::threads()) share(eight);
  }

  /// Tells all ranks how many tokens this one has. One block.
  SYMMETRA_DEVICE void tell() const {
    for (uint32_t rank = platform::thread(); rank < args_.world; rank += platform::threads()) {
      if (rank != args_.rank) platform::store(&heads_.head(args_.rank)->tokens + words_to(rank), tokens_);
    }
  }

 private:
  /// Packets of ids that a thread loads at once.
  static constexpr uint32_t kAhead = platform::kTeam == 1 ? 1 : 8;

  /// The first pair of this thread's share whose expert there is not; kNone: there is none.
  SYMMETRA_DEVICE uint32_t find_bad() const {
    const uint32_t pairs = asked_.pairs(), threads = platform::threads(), each = 16 / args_.id_bytes;
    const auto* const ids = static_cast<const uint8_t*>(args_.ids);
    uint32_t first_bad = kNone;
    const auto judge = [&](uint32_t pair, int64_t expert) {
      if (pair < first_bad && asked_.is_bad(expert)) first_bad = pair;
    };
    const uint32_t packets = reinterpret_cast<uintptr_t>(ids) % 16 == 0 ? pairs / each : 0;
    SYMMETRA_ROLLED
    for (uint32_t first = platform::thread(); first < packets; first += kAhead * threads) {
      Words<4> loaded[kAhead];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (first + i * threads < packets) loaded[i] = platform::load<Words<4>>(ids + uint64_t{first + i * threads} * 16);
      }
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t pair = (first + i * threads) * each;
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
    for (uint32_t pair = packets * each + platform::thread(); pair < pairs; pair += threads) judge(pair, asked_.expert(pair));
    return first_bad;
  }

  /// Words from the own heads to those of a rank.
  SYMMETRA_DEVICE int64_t words_to(uint32_t rank) const {
    return (reinterpret_cast<intptr_t>(args_.regions[rank]) - reinterpret_cast<intptr_t>(args_.regions[args_.rank])) / 4;
  }

  SYMMETRA_DEVICE void share(uint32_t eight) const {
    const uint32_t pairs = tokens_ * args_.top_k;
    Words<4> copies{}, weights[2]{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t pair = eight * 8 + i;
      if (pair >= pairs) continue;
      copies.word[i / 2] |= uint32_t{asked_.copy(pair)} << i % 2 * 16;
      weights[i / 4].word[i % 4] = platform::bits_of(args_.weights != nullptr ? args_.weights[pair] : 1.0f);
    }
    auto* const own_copies = reinterpret_cast<uint32_t*>(heads_.copies(args_.rank)) + eight * 4;
    auto* const own_weights = reinterpret_cast<uint32_t*>(heads_.weights(args_.rank)) + eight * 8;
    each_rank(args_, [&](uint32_t rank) {
      const int64_t away = words_to(rank);
      platform::store(own_copies + away, copies);
      platform::store(own_weights + away, weights[0]);
      if (eight * 8 + 4 < pairs) platform::store(own_weights + away + 4, weights[1]);
    });
  }

  const ExpertArgs& args_;
  Asked asked_;
  ExpertTable table_;
  Heads heads_;
  bool again_;
  uint32_t tokens_;
};

/// The tokens of a block, some at a time, with the ranks of their experts.
class SourceTile {
 public:
  /// `words`: of block-shared memory, 2 kMostTopK, at a multiple of sixteen bytes.
  SYMMETRA_DEVICE SourceTile(const ExpertArgs& args, const OwnPairs& pairs, uint32_t* words)
      : args_(args), pairs_(pairs), words_(words), stride_((args.top_k + 3) / 4 * 4), room_(2 * kMostTopK / stride_) {}

  SYMMETRA_DEVICE uint32_t token(uint32_t i) const { return platform::block() + (begin_ + i) * platform::blocks(); }
  SYMMETRA_DEVICE bool has(uint32_t i) const { return i < room_ && token(i) < pairs_.tokens(); }

  /// Finds the ranks of the block's tokens from number `begin` on. A sync must precede and follow.
  SYMMETRA_DEVICE void find(uint32_t begin) {
    begin_ = begin;
    SYMMETRA_ROLLED
    for (uint32_t item = platform::thread(); item < room_ * stride_; item += platform::threads()) {
      const uint32_t i = item / stride_, k = item - i * stride_;
      const uint32_t rank = has(i) && k < args_.top_k ? pairs_.rank(token(i) * args_.top_k + k) : uint32_t{kNoRank};
      words_[item] = rank != kNoRank ? 1u << rank : 0;
    }
  }
  SYMMETRA_DEVICE uint32_t next() const { return begin_ + room_; }

  /// The ranks of a token, a bit each.
  SYMMETRA_DEVICE uint32_t ranks(uint32_t i) const {
    uint32_t ranks = 0;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < stride_; k += 4) {
      const auto four = platform::load_shared<Words<4>>(words_ + i * stride_ + k);
      ranks |= four.word[0] | four.word[1] | four.word[2] | four.word[3];
    }
    return ranks;
  }

  /// Keeps where the tokens are on every rank, for combines.
  SYMMETRA_DEVICE void keep() const {
    const Places places(args_);
    SYMMETRA_ROLLED
    for (uint32_t item = platform::thread(); item < room_ * args_.world; item += platform::threads()) {
      const uint32_t i = item / args_.world, rank = item - i * args_.world;
      if (!has(i)) continue;
      const uint32_t place = args_.rank * args_.max_tokens + token(i);
      places.there[uint64_t{rank} * args_.max_tokens + token(i)] = (ranks(i) >> rank & 1) != 0 ? place : kNone;
    }
  }

 private:
  const ExpertArgs& args_;
  const OwnPairs& pairs_;
  uint32_t* words_;
  uint32_t stride_;  ///< words of a token
  uint32_t room_;    ///< tokens at a time
  uint32_t begin_ = 0;
};

/// By one block, behind the barrier: keeps whether something is wrong with the pairs of a rank, and reports the first that is, which it
/// reads in the memory of that rank. All ranks find the same.
SYMMETRA_DEVICE void judge_ranks(const ExpertArgs& args, const GridBarrier& barrier, bool wrong) {
  if (platform::thread() != 0) return;
  const ExpertState state(args);
  state.failed() = wrong;
  state.rows() = static_cast<uint32_t>(args.capacity);
  if (!wrong) return;
  const auto heads_at = static_cast<uint64_t>(args.heads - args.regions[args.rank]);
  reports_heads(args, [&](uint32_t source, uint32_t i) -> uint32_t {
    if (!barrier.is_wrong(source)) return i == 3 ? kNone : 0;
    return platform::load<uint32_t>(args.regions[source] + heads_at + source * args.head_bytes + i * 4);
  });
}

/// Writes the own rows to the places of their source and tokens on the ranks that they go to, and their pairs to all ranks, between two
/// barriers: none if something is wrong with the pairs of a rank. A block takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_push_by_source(SYMMETRA_ARGS(ExpertArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  GridBarrier barrier(args, call, words);
  const OwnPairs pairs(args);
  // The greeting says what the first block has found; others begin with their tokens.
  barrier.greet(platform::block() == 0 && pairs.judge(words + kMaxWorld));
  SourceTile tile(args, pairs, words + kMaxWorld);
  platform::sync_block();  // the words are free
  tile.find(0);
  if (barrier.enter()) {
    const bool wrong = barrier.is_wrong();
    if (platform::block() == 0) judge_ranks(args, barrier, wrong);
    if (platform::block() == 0 && !wrong) pairs.tell();
    if (!wrong) pairs.share();
    SYMMETRA_ROLLED
    while (!wrong && tile.has(0)) {
      tile.keep();
      SYMMETRA_ROLLED
      for (uint32_t i = 0; tile.has(i); ++i) {
        const uint32_t token = tile.token(i);
        const auto place = [&](uint32_t) { return args.rank * args.max_tokens + token; };
        send_row<Element>(args, token, TheirRows(args, token, tile.ranks(i), place));
      }
      platform::sync_block();  // all have read the ranks
      tile.find(tile.next());
      platform::sync_block();
    }
  }
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
