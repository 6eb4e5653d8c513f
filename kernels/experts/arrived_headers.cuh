// The routing headers that a block of a receiving kernel has received from all ranks, pair counts of each expert
// replica, and a check for errors. All ranks receive the same headers, so all ranks find the same errors.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// Block-shared memory of the receiving kernel.
struct ReceiveShared {
  uint32_t room;          ///< words for the replicas of a routing header
  uint32_t stride;        ///< words for the places of a row
  uint32_t* places;       ///< for each of the block's tokens: the places of its row, kNone for unused ones
  uint32_t* experts;      ///< for each pair of the block's tokens: the local expert, or kNone
  uint32_t* headers;      ///< kHeaderWords a rank
  uint32_t* replicas;     ///< replicas of the pairs of all ranks, two in a word, if the block holds them
  uint32_t* pairs;        ///< for each replica: pairs of all ranks
  uint32_t* before;       ///< for each local expert: pairs before the block's tokens
  uint32_t* rows;         ///< by rank, in two halves of a word: received tokens before the block's, and all received tokens
  uint32_t* come;         ///< for each rank: rows that the rank receives, if counted
  uint32_t* offsets;      ///< for each local expert: its first row, unless experts have equal capacity
  uint32_t* pair_places;  ///< for each pair of the block's tokens: its place, or kNone
  uint32_t* scan;         ///< kScanWords a thread

  SYMMETRA_DEVICE ReceiveShared(const ReceiveArgs& args, uint32_t* words)
      : room((args.max_tokens * args.top_k + 3) / 4 * 2),  // whole packets
        stride((args.top_k + 3) / 4 * 4),                  // read four at once
        places(words),
        experts(places + args.rows_at_once * stride),
        headers(experts + (args.rows_at_once * args.top_k + 3) / 4 * 4),
        replicas(headers + kHeaderWords * args.world),
        pairs(replicas + (args.holds_replicas != 0 ? args.world * room : 0)),
        before(pairs + args.replicas),
        rows(before + args.local),
        come(rows + 1),
        offsets(come + args.world),
        pair_places(offsets + args.local),
        scan(pair_places + args.rows_at_once * args.top_k) {}
};

/// The routing headers of all ranks, from the view of a block. Work that does not depend on the headers runs before
/// waiting for them.
class ArrivedHeaders {
 public:
  SYMMETRA_DEVICE ArrivedHeaders(const ReceiveArgs& args, const ExpertPackets& packets, device::Waiter& waiter, const ReceiveShared& shared)
      : args_(args),
        packets_(packets),
        waiter_(waiter),
        shared_(shared),
        teams_((platform::threads() + platform::kTeam - 1) / platform::kTeam) {
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i <= args.replicas + args.local + args.world; i += platform::threads()) shared_.pairs[i] = 0;
    // Teams share the headers: several teams process one header, so that headers are not processed one after the other.
    part_ = platform::thread() / platform::kTeam;
    while ((share_ + 1) * args.world <= teams_) ++share_;
    for (; part_ >= share_; part_ -= share_) ++header_;
    if (header_ < args.world) replicas_ = replicas_on(header_);  // loads whose values are not used here
  }

  /// Waits for the routing headers of all ranks, except the weights, and stores them in block-shared memory. Returns
  /// false on all threads when the wait gave up.
  SYMMETRA_DEVICE bool await() {
    // Whole rounds of one packet for each thread, for headers of as many tokens as this rank has: at least for the
    // fixed part of every header.
    uint32_t number = platform::thread(), sure = platform::threads();
    while (sure < packets_.replicas_end(args_.tokens) * args_.world) sure += platform::threads();
    SYMMETRA_ROLLED
    for (; number < sure; number += platform::threads()) header_packet(number);
    if (platform::sync_block_or(waiter_.gave_up())) return false;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t count = tokens(source);
      most_ = count > most_ ? count : most_;
      all_ += count;
      wrong_ |= word(source, kHeaderWrong);
    }
    const uint32_t packets = packets_.replicas_end(most_) * args_.world;
    if (packets <= sure) return true;
    SYMMETRA_ROLLED
    for (; number < packets; number += platform::threads()) header_packet(number);
    return !platform::sync_block_or(waiter_.gave_up());
  }

  /// Tokens of a rank.
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return word(source, 0); }
  /// Tokens of the rank that has most.
  SYMMETRA_DEVICE uint32_t most() const { return most_; }
  /// The replicas of two consecutive pairs, of which the first has an even number.
  SYMMETRA_DEVICE uint32_t replicas_of(uint32_t source, uint32_t two) const {
    return args_.holds_replicas != 0 ? shared_.replicas[source * shared_.room + two] : packets_.word(source, kHeaderWords + two);
  }
  /// The replica of a pair.
  SYMMETRA_DEVICE uint32_t replica_of(uint32_t source, uint32_t pair) const {
    return replicas_of(source, pair / 2) >> pair % 2 * 16 & 0xFFFF;
  }
  /// Whether a token has an expert here.
  SYMMETRA_DEVICE bool comes(uint32_t source, uint32_t token) const {
    return goes(source, token, {args_.first_replica, args_.first_replica + args_.local});
  }

  /// Consecutive replicas: the first, and the end.
  struct Replicas {
    uint32_t first, end;
  };
  /// Whether a token has an expert among some replicas. Eight pairs are loaded at once.
  SYMMETRA_DEVICE bool goes(uint32_t source, uint32_t token, const Replicas& among) const {
    const uint32_t begin = token * args_.top_k, end = begin + args_.top_k;
    bool any = false;
    SYMMETRA_ROLLED
    for (uint32_t first = begin / 2; first * 2 < end; first += 4) {
      uint32_t replicas[4];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 4; ++i) replicas[i] = (first + i) * 2 < end ? replicas_of(source, first + i) : 0;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t pair = first * 2 + i, replica = replicas[i / 2] >> i % 2 * 16 & 0xFFFF;
        any |= pair >= begin && pair < end && replica - among.first < among.end - among.first;
      }
    }
    return any;
  }

  /// Calls `body(source, token)` for every `step`th token of all ranks, from number `first` on.
  template <class Body>
  SYMMETRA_DEVICE void each_token(uint32_t first, uint32_t step, Body body) const {
    SYMMETRA_ROLLED
    for (uint32_t source = 0, token = first;; token += step) {
      for (; source < args_.world && token >= tokens(source); ++source) token -= tokens(source);
      if (source >= args_.world) break;
      body(source, token);
    }
  }

  /// Counts the pairs of all ranks before a token of a rank, and if `all` also all pairs. A sync must follow.
  SYMMETRA_DEVICE void tally(uint32_t its_source, uint32_t its_first, bool all) const {
    SYMMETRA_ROLLED
    for (uint32_t source = header_; source < args_.world; source += teams_) {
      const uint32_t pairs = tokens(source) * args_.top_k;
      const uint32_t ahead = source < its_source ? pairs : source == its_source ? its_first * args_.top_k : 0;
      SYMMETRA_ROLLED
      for (uint32_t two = part_ * platform::kTeam + platform::thread() % platform::kTeam; two * 2 < pairs;
           two += share_ * platform::kTeam) {
        const uint32_t replicas = replicas_of(source, two);
        SYMMETRA_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t replica = i == 0 ? replicas & 0xFFFF : replicas >> 16, pair = two * 2 + i, expert = replica - args_.first_replica;
          if (replica == kNoReplica || pair >= pairs) continue;
          if (all) platform::add_shared(shared_.pairs + replica, 1);
          if (pair < ahead && expert < args_.local) platform::add_shared(shared_.before + expert, 1);
        }
      }
    }
  }

  /// By rank: counts the received tokens before a token of a rank in the lower half of a word, and all received tokens
  /// in the upper half. Each half has the range for the most tokens that are sent in packets. A sync must follow.
  SYMMETRA_DEVICE void tally_rows(uint32_t its_source, uint32_t its_first) const {
    uint32_t rows = 0;
    each_token(platform::thread(), platform::threads(), [&](uint32_t source, uint32_t token) {
      const bool ahead = source < its_source || (source == its_source && token < its_first);
      if (comes(source, token)) rows += (1u << 16) + ahead;
    });
    if (rows != 0) platform::add_shared(shared_.rows, rows);
  }

  /// Whether there is an error, on all threads. Called after a tally of all pairs, and by rank after a tally of rows.
  SYMMETRA_DEVICE bool is_wrong() const { return (wrong_ != 0 || (!fit() && exceeds())) && found_wrong(); }

 private:
  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const { return shared_.headers[source * kHeaderWords + i]; }

  /// Waits for one packet of the headers, and stores its data. Consecutive numbers are the same packet of consecutive
  /// ranks. The first packet of a header contains the header's length, so it is loaded together with the other packet.
  SYMMETRA_DEVICE void header_packet(uint32_t number) {
    const uint32_t i = number / args_.world, source = number - i * args_.world;
    if (i >= packets_.weights_at()) return;
    const Packet* const from = packets_.control(args_.rank, source, 0);
    Packet packet;
    uint32_t count = 0;
    waiter_.until(source, [&] {
      const Packet first = platform::load_packet(from);
      packet = platform::load_packet(from + i);
      if (!ByteProtocol::arrived(first, packets_.epoch())) return false;
      count = ByteProtocol::decode(first).word[0];
      return i >= packets_.replicas_end(count) || ByteProtocol::arrived(packet, packets_.epoch());
    });
    if (waiter_.gave_up() || i >= packets_.replicas_end(count)) return;
    const Words<2> data = ByteProtocol::decode(packet);
    if (2 * i < kHeaderWords) {
      platform::store_shared(shared_.headers + source * kHeaderWords + 2 * i, data);
    } else if (args_.holds_replicas != 0) {
      platform::store_shared(shared_.replicas + source * shared_.room + 2 * i - kHeaderWords, data);
    }
  }

  /// Whether the tokens are too few for any rank to exceed its capacity.
  SYMMETRA_DEVICE bool fit() const {
    uint64_t rows = all_;
    if (args_.layout != kRowsByRank) rows *= args_.top_k;
    if (args_.layout == kRowsByExpert) rows += uint64_t{args_.replicas} * (args_.align - 1);
    return rows <= args_.capacity;
  }

  /// Whether a rank may exceed its capacity: with equal capacity for every expert, whether an expert exceeds it. Equal
  /// on all threads.
  SYMMETRA_DEVICE bool exceeds() const {
    if (args_.layout != kRowsPadded) return true;
    bool any = false;
    SYMMETRA_ROLLED
    for (uint32_t replica = platform::thread(); replica < args_.replicas; replica += platform::threads()) {
      any |= shared_.pairs[replica] > args_.capacity;
    }
    return platform::sync_block_or(any);
  }

  /// Looks for errors in the same order on all ranks. The first block reports the first error.
  SYMMETRA_DEVICE bool found_wrong() const {
    if (wrong_ != 0 && reports_headers(args_, [&](uint32_t source, uint32_t i) { return word(source, i); })) return true;
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

  /// Counts the rows that each rank would receive. Teams share ranks in the same way as headers, so that ranks are not
  /// processed one after the other. A sync must follow.
  SYMMETRA_DEVICE void count_rows() const {
    const uint32_t first = part_ * platform::kTeam + platform::thread() % platform::kTeam, step = share_ * platform::kTeam;
    SYMMETRA_ROLLED
    for (uint32_t rank = header_; rank < args_.world; rank += teams_) {
      const Replicas replicas = rank == header_ ? replicas_ : replicas_on(rank);
      uint32_t rows = 0;
      if (args_.layout == kRowsByRank) {
        each_token(first, step, [&](uint32_t source, uint32_t token) { rows += goes(source, token, replicas); });
      } else {
        for (uint32_t replica = replicas.first + first; replica < replicas.end; replica += step)
          rows += aligned_rows(args_, shared_.pairs[replica]);
      }
      if (rows != 0) platform::add_shared(shared_.come + rank, rows);
    }
  }

  /// Padded: the rows of the expert with the most rows on a rank.
  SYMMETRA_DEVICE uint32_t most_of(uint32_t rank) const {
    const Replicas replicas = replicas_on(rank);
    uint32_t most = 0;
    SYMMETRA_ROLLED
    for (uint32_t replica = replicas.first + platform::thread(); replica < replicas.end; replica += platform::threads()) {
      const uint32_t pairs = shared_.pairs[replica];
      most = pairs > most ? pairs : most;
    }
    return block_max(most, shared_.scan);
  }

  /// The replicas on a rank.
  SYMMETRA_DEVICE Replicas replicas_on(uint32_t rank) const {
    const ExpertTable table(args_);
    return {table.first_replica(rank), table.first_replica(rank + 1)};
  }

  const ReceiveArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  ReceiveShared shared_;
  uint32_t teams_;
  uint32_t share_ = 1;   ///< teams that share a header
  uint32_t header_ = 0;  ///< the first header of this thread's team
  uint32_t part_ = 0;    ///< the number of the team among the teams that share the header
  Replicas replicas_{};  ///< on the rank of that header
  uint32_t most_ = 0;    ///< tokens of the rank with the most tokens
  uint32_t all_ = 0;     ///< tokens of all ranks
  uint32_t wrong_ = 0;   ///< nonzero: a header reports an error
};

}  // namespace symmetra::kernels
