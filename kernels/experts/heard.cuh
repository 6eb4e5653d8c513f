// What a block of a receiving kernel hears of the tokens of all ranks, and counts: pairs for each copy, and whether something
// is wrong. All ranks hear the same, so all find the same.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// What a block of the receiving kernel shares, in its memory.
struct ReceiveShared {
  uint32_t room;          ///< words for the copies of a head
  uint32_t stride;        ///< words for the places of a row
  uint32_t* places;       ///< for each of the block's tokens: the places of its row, of which some are kNone
  uint32_t* experts;      ///< for each pair of the block's tokens: the local expert, or kNone
  uint32_t* heads;        ///< kHeadWords a rank
  uint32_t* copies;       ///< of the pairs of all ranks, two a word, where the block holds them
  uint32_t* pairs;        ///< for each copy: pairs of all ranks
  uint32_t* before;       ///< for each local expert: pairs ahead of the block's tokens
  uint32_t* rows;         ///< by rank, in two halves of a word: tokens that come ahead of the block's, and all that come
  uint32_t* come;         ///< for each rank: rows that come to the rank, if they are counted
  uint32_t* offsets;      ///< for each local expert: its first row, where experts have no equal room
  uint32_t* pair_places;  ///< for each pair of the block's tokens: its place, or kNone
  uint32_t* scan;         ///< kScanWords a thread

  SYMMETRA_DEVICE ReceiveShared(const ExpertArgs& args, uint32_t* words)
      : room((args.max_tokens * args.top_k + 3) / 4 * 2),  // whole packets
        stride((args.top_k + 3) / 4 * 4),                  // read four at once
        places(words),
        experts(places + args.rows_at_once * stride),
        heads(experts + (args.rows_at_once * args.top_k + 3) / 4 * 4),
        copies(heads + kHeadWords * args.world),
        pairs(copies + (args.holds != 0 ? args.world * room : 0)),
        before(pairs + args.copies),
        rows(before + args.local),
        come(rows + 1),
        offsets(come + args.world),
        pair_places(offsets + args.local),
        scan(pair_places + args.rows_at_once * args.top_k) {}
};

/// The heads of all ranks, from the view of a block. Whatever needs no head is done before heads are awaited.
class Heard {
 public:
  SYMMETRA_DEVICE Heard(const ExpertArgs& args, const ExpertPackets& packets, device::Waiter& waiter, const ReceiveShared& shared)
      : args_(args),
        packets_(packets),
        waiter_(waiter),
        shared_(shared),
        teams_((platform::threads() + platform::kTeam - 1) / platform::kTeam) {
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i <= args.copies + args.local + args.world; i += platform::threads()) shared_.pairs[i] = 0;
    // Teams share the heads: a few take one, so that heads are not looked at in turn.
    part_ = platform::thread() / platform::kTeam;
    while ((share_ + 1) * args.world <= teams_) ++share_;
    for (; part_ >= share_; part_ -= share_) ++head_;
    if (head_ < args.world) copies_ = copies_on(head_);  // loads that nothing here waits for
  }

  /// Awaits the heads of all ranks without their weights, and keeps them in the block's memory. False on all threads: the wait
  /// gave up.
  SYMMETRA_DEVICE bool await() {
    // Whole rounds of a packet a thread, for heads of as many tokens as this rank has: at least for what each head begins with.
    uint32_t number = platform::thread(), sure = platform::threads();
    while (sure < packets_.copies_end(args_.tokens) * args_.world) sure += platform::threads();
    SYMMETRA_ROLLED
    for (; number < sure; number += platform::threads()) head_packet(number);
    if (platform::sync_block_or(waiter_.gave_up())) return false;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t count = tokens(source);
      most_ = count > most_ ? count : most_;
      all_ += count;
      wrong_ |= word(source, kHeadWrong);
    }
    const uint32_t packets = packets_.copies_end(most_) * args_.world;
    if (packets <= sure) return true;
    SYMMETRA_ROLLED
    for (; number < packets; number += platform::threads()) head_packet(number);
    return !platform::sync_block_or(waiter_.gave_up());
  }

  /// Tokens of a rank.
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return word(source, 0); }
  /// Tokens of the rank that has most.
  SYMMETRA_DEVICE uint32_t most() const { return most_; }
  /// The copies of two pairs that follow each other, of which the first has an even number.
  SYMMETRA_DEVICE uint32_t copies_of(uint32_t source, uint32_t two) const {
    return args_.holds != 0 ? shared_.copies[source * shared_.room + two] : packets_.word(source, kHeadWords + two);
  }
  /// The copy of a pair.
  SYMMETRA_DEVICE uint32_t copy_of(uint32_t source, uint32_t pair) const { return copies_of(source, pair / 2) >> pair % 2 * 16 & 0xFFFF; }
  /// Whether a token has an expert here.
  SYMMETRA_DEVICE bool comes(uint32_t source, uint32_t token) const {
    return goes(source, token, {args_.first_copy, args_.first_copy + args_.local});
  }

  /// Copies that follow each other: the first, and the one behind the last.
  struct Copies {
    uint32_t first, end;
  };
  /// Whether a token has an expert among copies. Eight pairs are loaded at once.
  SYMMETRA_DEVICE bool goes(uint32_t source, uint32_t token, const Copies& among) const {
    const uint32_t begin = token * args_.top_k, end = begin + args_.top_k;
    bool any = false;
    SYMMETRA_ROLLED
    for (uint32_t first = begin / 2; first * 2 < end; first += 4) {
      uint32_t copies[4];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 4; ++i) copies[i] = (first + i) * 2 < end ? copies_of(source, first + i) : 0;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t pair = first * 2 + i, copy = copies[i / 2] >> i % 2 * 16 & 0xFFFF;
        any |= pair >= begin && pair < end && copy - among.first < among.end - among.first;
      }
    }
    return any;
  }

  /// Calls `body(source, token)` for the tokens of all ranks from number `first` on, of which this thread has every `step`th.
  template <class Body>
  SYMMETRA_DEVICE void each_token(uint32_t first, uint32_t step, Body body) const {
    SYMMETRA_ROLLED
    for (uint32_t source = 0, token = first;; token += step) {
      for (; source < args_.world && token >= tokens(source); ++source) token -= tokens(source);
      if (source >= args_.world) break;
      body(source, token);
    }
  }

  /// Counts the pairs of all ranks ahead of a token of a rank, and if `all` all pairs. A sync must follow.
  SYMMETRA_DEVICE void tally(uint32_t its_source, uint32_t its_first, bool all) const {
    SYMMETRA_ROLLED
    for (uint32_t source = head_; source < args_.world; source += teams_) {
      const uint32_t pairs = tokens(source) * args_.top_k;
      const uint32_t ahead = source < its_source ? pairs : source == its_source ? its_first * args_.top_k : 0;
      SYMMETRA_ROLLED
      for (uint32_t two = part_ * platform::kTeam + platform::thread() % platform::kTeam; two * 2 < pairs;
           two += share_ * platform::kTeam) {
        const uint32_t copies = copies_of(source, two);
        SYMMETRA_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t copy = i == 0 ? copies & 0xFFFF : copies >> 16, pair = two * 2 + i, expert = copy - args_.first_copy;
          if (copy == kNoCopy || pair >= pairs) continue;
          if (all) platform::add_shared(shared_.pairs + copy, 1);
          if (pair < ahead && expert < args_.local) platform::add_shared(shared_.before + expert, 1);
        }
      }
    }
  }

  /// By rank: counts the tokens that come here ahead of a token of a rank, in the lower half of a word, and all that come in the
  /// upper. Each half has room for the most tokens that go by packets. A sync must follow.
  SYMMETRA_DEVICE void tally_rows(uint32_t its_source, uint32_t its_first) const {
    uint32_t rows = 0;
    each_token(platform::thread(), platform::threads(), [&](uint32_t source, uint32_t token) {
      const bool ahead = source < its_source || (source == its_source && token < its_first);
      if (comes(source, token)) rows += (1u << 16) + ahead;
    });
    if (rows != 0) platform::add_shared(shared_.rows, rows);
  }

  /// Whether something is wrong, on all threads. Behind a tally of all pairs, by rank behind that of rows.
  SYMMETRA_DEVICE bool is_wrong() const { return (wrong_ != 0 || (!fit() && exceeds())) && found_wrong(); }

 private:
  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const { return shared_.heads[source * kHeadWords + i]; }

  /// Awaits a packet of the heads, of which those with equal numbers follow each other, and keeps its data. How long a head is,
  /// its first packet says, which is looked at beside the other.
  SYMMETRA_DEVICE void head_packet(uint32_t number) {
    const uint32_t i = number / args_.world, source = number - i * args_.world;
    if (i >= packets_.weights_at()) return;
    const Packet* const from = packets_.telling(args_.rank, source, 0);
    Packet packet;
    uint32_t count = 0;
    waiter_.until(source, [&] {
      const Packet first = platform::load_packet(from);
      packet = platform::load_packet(from + i);
      if (!ByteProtocol::arrived(first, packets_.epoch())) return false;
      count = ByteProtocol::decode(first).word[0];
      return i >= packets_.copies_end(count) || ByteProtocol::arrived(packet, packets_.epoch());
    });
    if (waiter_.gave_up() || i >= packets_.copies_end(count)) return;
    const Words<2> data = ByteProtocol::decode(packet);
    if (2 * i < kHeadWords) {
      platform::store_shared(shared_.heads + source * kHeadWords + 2 * i, data);
    } else if (args_.holds != 0) {
      platform::store_shared(shared_.copies + source * shared_.room + 2 * i - kHeadWords, data);
    }
  }

  /// Whether the tokens are so few that no rank can receive more than it has room for.
  SYMMETRA_DEVICE bool fit() const {
    uint64_t rows = all_;
    if (args_.layout != kRowsByRank) rows *= args_.top_k;
    if (args_.layout == kRowsByExpert) rows += uint64_t{args_.copies} * (args_.align - 1);
    return rows <= args_.capacity;
  }

  /// Whether a rank may receive more than it has room for: with equal room for every expert, whether one does. On all threads.
  SYMMETRA_DEVICE bool exceeds() const {
    if (args_.layout != kRowsPadded) return true;
    bool any = false;
    SYMMETRA_ROLLED
    for (uint32_t copy = platform::thread(); copy < args_.copies; copy += platform::threads()) any |= shared_.pairs[copy] > args_.capacity;
    return platform::sync_block_or(any);
  }

  /// Looks for what is wrong, in the order in which all ranks look, and the first block reports it.
  SYMMETRA_DEVICE bool found_wrong() const {
    if (wrong_ != 0 && reports_heads(args_, [&](uint32_t source, uint32_t i) { return word(source, i); })) return true;
    const bool padded = args_.layout == kRowsPadded;
    if (!padded) count_rows();
    platform::sync_block();
    SYMMETRA_ROLLED
    for (uint32_t rank = 0; rank < args_.world; ++rank) {
      const uint32_t rows = padded ? most_of(rank) : shared_.come[rank];
      if (rows > args_.capacity) return reports(args_, kStatusCapacity, rank, rows, args_.capacity);
    }
    return false;
  }

  /// Counts the rows that each rank would receive. Teams take ranks as they take heads, so that ranks are not looked at in turn. A sync
  /// must follow.
  SYMMETRA_DEVICE void count_rows() const {
    const uint32_t first = part_ * platform::kTeam + platform::thread() % platform::kTeam, step = share_ * platform::kTeam;
    SYMMETRA_ROLLED
    for (uint32_t rank = head_; rank < args_.world; rank += teams_) {
      const Copies copies = rank == head_ ? copies_ : copies_on(rank);
      uint32_t rows = 0;
      if (args_.layout == kRowsByRank) {
        each_token(first, step, [&](uint32_t source, uint32_t token) { rows += goes(source, token, copies); });
      } else {
        for (uint32_t copy = copies.first + first; copy < copies.end; copy += step) rows += aligned_rows(args_, shared_.pairs[copy]);
      }
      if (rows != 0) platform::add_shared(shared_.come + rank, rows);
    }
  }

  /// Padded: the rows of that expert of a rank which has most.
  SYMMETRA_DEVICE uint32_t most_of(uint32_t rank) const {
    const Copies copies = copies_on(rank);
    uint32_t most = 0;
    SYMMETRA_ROLLED
    for (uint32_t copy = copies.first + platform::thread(); copy < copies.end; copy += platform::threads()) {
      const uint32_t pairs = shared_.pairs[copy];
      most = pairs > most ? pairs : most;
    }
    return block_max(most, shared_.scan);
  }

  /// The copies on a rank.
  SYMMETRA_DEVICE Copies copies_on(uint32_t rank) const {
    const ExpertTable table(args_);
    return {table.first_copy(rank), table.first_copy(rank + 1)};
  }

  const ExpertArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  ReceiveShared shared_;
  uint32_t teams_;
  uint32_t share_ = 1;  ///< teams that take a head together
  uint32_t head_ = 0;   ///< the first head of this thread's team
  uint32_t part_ = 0;   ///< the number of the team among those
  Copies copies_{};     ///< on the rank of that head
  uint32_t most_ = 0;   ///< tokens of the rank that has most
  uint32_t all_ = 0;    ///< tokens of all ranks
  uint32_t wrong_ = 0;  ///< nonzero: something is wrong with a head
};

}  // namespace symmetra::kernels
