// The receiving half of a dispatch in packets. Every block learns all heads and finds its own rows, so that blocks need not
// wait for each other.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// Bits of the number of a token, of which all ranks have fewer than 2^16.
constexpr uint32_t kTokenBits = 16;

/// What a block of the receiving kernel shares, in its memory.
struct ReceiveShared {
  uint32_t room;      ///< words for the copies of a head
  uint32_t* scan;     ///< kScanWords a thread
  uint32_t* heads;    ///< kHeadWords a rank
  uint32_t* copies;   ///< of the pairs of all ranks, two a word, where the block holds them
  uint32_t* pairs;    ///< for each copy: pairs of all ranks
  uint32_t* before;   ///< for each local expert: pairs of rows ahead of the block's
  uint32_t* offsets;  ///< for each local expert: its first row, and behind the last
  uint32_t* list;     ///< the block's rows: source << kTokenBits | token
  uint32_t* experts;  ///< for each pair of the list: the local expert, or kNone
  uint32_t* places;   ///< for each pair of the list: its place, or kNone

  SYMMETRA_DEVICE ReceiveShared(const ExpertArgs& args, uint32_t* words)
      : room((args.max_tokens * args.top_k + 3) / 4 * 2),  // whole packets
        scan(words),
        heads(scan + kScanWords * platform::threads()),
        copies(heads + kHeadWords * args.world),
        pairs(copies + (args.holds != 0 ? args.world * room : 0)),
        before(pairs + args.copies),
        offsets(before + args.local),
        list(offsets + args.local + 1),
        experts(list + args.rows_at_once),
        places(experts + args.rows_at_once * args.top_k) {}
};

/// One receive, from the view of a block.
template <class Protocol>
class Receive {
 public:
  SYMMETRA_DEVICE Receive(const ExpertArgs& args, const ExpertPackets& packets, device::Waiter& waiter, uint32_t* words)
      : args_(args), packets_(packets), waiter_(waiter), shared_(args, words) {}

  /// Awaits the heads of all ranks without their weights, and keeps them in the block's memory. How long a head is, its first
  /// packet says, which is looked at beside each other packet. False on all threads: the wait gave up.
  SYMMETRA_DEVICE bool heads() {
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i < args_.copies + args_.local; i += platform::threads()) shared_.pairs[i] = 0;
    const uint32_t most = copy_packets(args_.max_tokens);
    SYMMETRA_ROLLED
    for (uint32_t source = 0, i = platform::thread();; i += platform::threads()) {
      for (; i >= most && source < args_.world; i -= most) ++source;
      if (source >= args_.world) break;
      Packet packet;
      uint32_t count = 0;
      waiter_.until(source, [&] {
        const Packet first = platform::load_packet(packets_.telling(args_.rank, source, 0));
        packet = platform::load_packet(packets_.telling(args_.rank, source, i));
        if (!ByteProtocol::arrived(first, packets_.epoch())) return false;
        count = ByteProtocol::decode(first).word[0];
        return i >= copy_packets(count) || ByteProtocol::arrived(packet, packets_.epoch());
      });
      if (waiter_.gave_up() || i >= copy_packets(count)) continue;
      const Words<2> data = ByteProtocol::decode(packet);
      uint32_t* const into = shared_.heads + source * kHeadWords + 2 * i;
      uint32_t* const held = shared_.copies + source * shared_.room + 2 * i - kHeadWords;
      if (2 * i < kHeadWords) {
        platform::store_shared(into, data);
      } else if (args_.holds != 0) {
        platform::store_shared(held, data);
      }
    }
    return !platform::sync_block_or(waiter_.gave_up());
  }

  /// Counts pairs and rows, and finds where the rows of each local expert begin. Every block counts; the first tells what it
  /// found. False on all threads: something is wrong with the heads, and all ranks find the same.
  SYMMETRA_DEVICE bool count() {
    uint32_t mine = 0;
    each_token([&](uint32_t source, uint32_t token) {
      bool comes = false;
      SYMMETRA_ROLLED
      for (uint32_t k = 0; k < args_.top_k; ++k) {
        const uint32_t copy = copy_of(source, token * args_.top_k + k);
        if (copy == kNoCopy) continue;
        platform::add_shared(shared_.pairs + copy, 1);
        comes |= copy - args_.first_copy < args_.local;
      }
      mine += comes;
      if (!comes && platform::block() == 0) Places(args_).tokens[unit_of(source, token)] = kNone;
    });
    platform::sync_block();
    const bool wrong = is_wrong(), tells = platform::block() == 0;
    const ExpertState state(args_);
    if (tells && platform::thread() == 0) state.failed() = wrong;
    if (wrong) return false;
    const Run run(args_.local);
    uint32_t aligned = 0;
    SYMMETRA_ROLLED
    for (uint32_t expert = run.begin; expert < run.end; ++expert) aligned += aligned_rows(args_, shared_.pairs[args_.first_copy + expert]);
    const uint32_t values[2] = {mine, aligned};
    const Scanned<2> scanned = block_scan(values, shared_.scan);
    before_ = scanned.before[0];
    rows_ = scanned.all[0];
    const bool padded = args_.layout == kRowsPadded;
    uint32_t offset = scanned.before[1];
    SYMMETRA_ROLLED
    for (uint32_t expert = run.begin; expert < run.end; ++expert) {
      const uint32_t pairs = shared_.pairs[args_.first_copy + expert];
      shared_.offsets[expert] = padded ? expert * static_cast<uint32_t>(args_.capacity) : offset;
      offset += aligned_rows(args_, pairs);
      if (!tells) continue;
      state.count(expert) = pairs;
      state.offset(expert) = shared_.offsets[expert];
      if (args_.into.counts != nullptr) args_.into.counts[expert] = pairs;
      if (args_.into.offsets != nullptr) args_.into.offsets[expert] = shared_.offsets[expert];
    }
    if (tells && platform::thread() == 0) {
      const uint32_t end = padded ? args_.local * static_cast<uint32_t>(args_.capacity) : scanned.all[1];
      state.rows() = args_.layout == kRowsByRank ? rows_ : end;
      if (args_.into.offsets != nullptr) args_.into.offsets[args_.local] = end;
    }
    return true;
  }

  /// Receives the block's rows, as many at once as fit its memory.
  SYMMETRA_DEVICE void rows() {
    const uint32_t begin = platform::block() * args_.rows_at_once;
    SYMMETRA_ROLLED
    for (uint32_t first = begin; first < rows_; first += platform::blocks() * args_.rows_at_once) {
      if (first != begin) {
        platform::sync_block();  // all have read the list
        for (uint32_t expert = platform::thread(); expert < args_.local; expert += platform::threads()) shared_.before[expert] = 0;
        platform::sync_block();
      }
      const uint32_t end = rows_ - first < args_.rows_at_once ? rows_ : first + args_.rows_at_once;
      list(first, end);
      place(first, end - first);
      describe(first, end - first);
      take(first, end - first);
    }
  }

  /// Keeps how many tokens ranks have, for combines.
  SYMMETRA_DEVICE void keep() const {
    if (platform::block() != 0) return;
    for (uint32_t source = platform::thread(); source < args_.world; source += platform::threads()) {
      Heads(args_).head(source)->tokens = tokens(source);
    }
  }

  /// Tags repeat after 2^32 calls, and a packet not written since would look new. So each call empties one packet of each
  /// head, in turn, that the call does not use.
  SYMMETRA_DEVICE void scrub() const {
    if (platform::block() != 0 || platform::thread() != 0) return;
    const uint32_t i = packets_.epoch() / args_.buffers % args_.telling_packets;
    for (uint32_t source = 0; source < args_.world; ++source) {
      if (i >= packets_.head_packets(tokens(source))) platform::store_packet(packets_.telling(args_.rank, source, i), Packet{});
    }
  }

 private:
  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const { return shared_.heads[source * kHeadWords + i]; }
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return word(source, 0); }
  SYMMETRA_DEVICE uint32_t copy_of(uint32_t source, uint32_t pair) const {
    const uint32_t two = args_.holds != 0 ? shared_.copies[source * shared_.room + pair / 2] : packets_.word(source, kHeadWords + pair / 2);
    return two >> pair % 2 * 16 & 0xFFFF;
  }
  /// Packets of a head of so many tokens up to its last copy.
  SYMMETRA_DEVICE uint32_t copy_packets(uint32_t tokens) const { return (kHeadWords + (tokens * args_.top_k + 1) / 2 + 1) / 2; }
  SYMMETRA_DEVICE uint32_t unit_of(uint32_t source, uint32_t token) const { return source * args_.max_tokens + token; }
  SYMMETRA_DEVICE uint32_t source_of(uint32_t row) const { return shared_.list[row] >> kTokenBits; }
  SYMMETRA_DEVICE uint32_t token_of(uint32_t row) const { return shared_.list[row] & ((1u << kTokenBits) - 1); }

  /// Undefined when the wait gave up.
  SYMMETRA_DEVICE float await_weight(uint32_t source, uint32_t pair) const {
    const uint32_t at = kHeadWords + (tokens(source) * args_.top_k + 1) / 2 + pair;
    Packet packet;
    waiter_.until(source, [&] {
      packet = platform::load_packet(packets_.telling(args_.rank, source, at / 2));
      return ByteProtocol::arrived(packet, packets_.epoch());
    });
    const Words<2> data = ByteProtocol::decode(packet);
    return platform::f32_of(at % 2 == 0 ? data.word[0] : data.word[1]);
  }

  /// Calls `body(source, token)` for the tokens of this thread's run, of the tokens of all ranks.
  template <class Body>
  SYMMETRA_DEVICE void each_token(Body body) const {
    uint32_t all = 0;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) all += tokens(source);
    const Run run(all);
    uint32_t source = 0, begin = 0;
    SYMMETRA_ROLLED
    for (uint32_t i = run.begin; i < run.end; ++i) {
      while (i - begin >= tokens(source)) begin += tokens(source++);
      body(source, i - begin);
    }
  }

  /// Whether the tokens are so few that no rank can receive more than it has room for.
  SYMMETRA_DEVICE bool fit() const {
    uint64_t rows = 0;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) rows += tokens(source);
    if (args_.layout != kRowsByRank) rows *= args_.top_k;
    if (args_.layout == kRowsByExpert) rows += uint64_t{args_.copies} * (args_.align - 1);
    return rows <= args_.capacity;
  }

  SYMMETRA_DEVICE bool is_wrong() const {
    const auto found = [&](uint32_t code, uint32_t peer, uint64_t first, uint64_t second) {
      if (platform::block() == 0 && platform::thread() == 0) device::report(args_.wait, code, args_.op, peer, 0, first, second);
      return true;
    };
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t claimed = word(source, 1), room = word(source, 2), token = word(source, 3);
      if (claimed > room) return found(kStatusCapacity, source, claimed, room);
      const uint64_t expert = uint64_t{word(source, 5)} << 32 | word(source, 4);
      if (token != kNone) return found(kStatusRouting, source, uint64_t{args_.experts} << 32 | token, expert);
    }
    const bool fits = fit();
    SYMMETRA_ROLLED
    for (uint32_t rank = 0; rank < args_.world && !fits; ++rank) {
      const uint32_t rows = rows_of_rank(rank);
      if (rows > args_.capacity) return found(kStatusCapacity, rank, rows, args_.capacity);
    }
    return false;
  }

  /// What a rank would receive, as that counts against the capacity.
  SYMMETRA_DEVICE uint32_t rows_of_rank(uint32_t rank) const {
    const ExpertTable table(args_);
    const uint32_t begin = table.first_copy(rank), end = table.first_copy(rank + 1);
    uint32_t all = 0, most = 0;
    if (args_.layout == kRowsByRank) {
      each_token([&](uint32_t source, uint32_t token) {
        bool goes = false;
        for (uint32_t k = 0; k < args_.top_k; ++k) {
          const uint32_t copy = copy_of(source, token * args_.top_k + k);
          goes |= copy >= begin && copy < end;
        }
        all += goes;
      });
      return block_sum(all, shared_.scan);
    }
    SYMMETRA_ROLLED
    for (uint32_t copy = begin + platform::thread(); copy < end; copy += platform::threads()) {
      all += aligned_rows(args_, shared_.pairs[copy]);
      most = shared_.pairs[copy] > most ? shared_.pairs[copy] : most;
    }
    return args_.layout == kRowsPadded ? block_max(most, shared_.scan) : block_sum(all, shared_.scan);
  }

  /// Lists rows [first, end) of those that come, and counts the pairs of rows ahead.
  SYMMETRA_DEVICE void list(uint32_t first, uint32_t end) {
    uint32_t row = before_;
    each_token([&](uint32_t source, uint32_t token) {
      if (row >= end) return;
      bool comes = false;
      SYMMETRA_ROLLED
      for (uint32_t k = 0; k < args_.top_k; ++k) {
        const uint32_t expert = copy_of(source, token * args_.top_k + k) - args_.first_copy;
        if (expert >= args_.local) continue;
        comes = true;
        if (row < first) platform::add_shared(shared_.before + expert, 1);
      }
      if (comes && row >= first) shared_.list[row - first] = source << kTokenBits | token;
      row += comes;
    });
    platform::sync_block();
  }

  /// Calls `body(row, i)` for the pairs of the listed rows: i is the pair's number among all of them. A team takes a row. The
  /// last teams begin, because the first have packets.
  template <class Body>
  SYMMETRA_DEVICE void each_pair(uint32_t count, Body body) const {
    const uint32_t team = platform::thread() / platform::kTeam, teams = (platform::threads() + platform::kTeam - 1) / platform::kTeam;
    SYMMETRA_ROLLED
    for (uint32_t row = teams - 1 - team; row < count; row += teams) {
      SYMMETRA_ROLLED
      for (uint32_t k = platform::thread() % platform::kTeam; k < args_.top_k; k += platform::kTeam) body(row, row * args_.top_k + k);
    }
  }

  /// Finds the place of each pair of the listed rows, of which the first is row `first` of those that come.
  SYMMETRA_DEVICE void place(uint32_t first, uint32_t count) {
    each_pair(count, [&](uint32_t row, uint32_t i) {
      const uint32_t pair = token_of(row) * args_.top_k + i - row * args_.top_k;
      const uint32_t expert = copy_of(source_of(row), pair) - args_.first_copy;
      shared_.experts[i] = expert < args_.local ? expert : kNone;
    });
    platform::sync_block();
    const Places places(args_);
    each_pair(count, [&](uint32_t row, uint32_t i) {
      const uint32_t expert = shared_.experts[i], unit = unit_of(source_of(row), token_of(row)), k = i - row * args_.top_k;
      uint32_t place = kNone;
      if (expert != kNone) {
        place = shared_.offsets[expert] + shared_.before[expert];
        SYMMETRA_ROLLED
        for (uint32_t earlier = 0; earlier < i; ++earlier) place += shared_.experts[earlier] == expert;
        places.pairs[uint64_t{unit} * args_.top_k + k] = place;
      }
      shared_.places[i] = place;
      if (k == 0) places.tokens[unit] = first + row;
    });
    platform::sync_block();
  }

  /// Awaits `count` listed rows, of which the first is row `first` of those that come, and puts them into their places.
  SYMMETRA_DEVICE void take(uint32_t first, uint32_t count) {
    const uint32_t packets = static_cast<uint32_t>(args_.row_bytes / 16);
    SYMMETRA_ROLLED
    for (uint32_t row = 0, i = platform::thread();; i += platform::threads()) {
      for (; i >= packets; i -= packets) ++row;
      if (row >= count) break;
      const uint32_t source = source_of(row);
      Incoming<Protocol, 1> incoming;
      incoming.look(0, packets_.row(args_.rank, unit_of(source, token_of(row)), row_packets<Protocol>(args_.row_bytes)), i, source);
      if (incoming.await(waiter_, packets_.epoch())) put(first, row, i, incoming.data(0));
    }
  }

  /// Puts packet `i` of a listed row into the row's places.
  SYMMETRA_DEVICE void put(uint32_t first, uint32_t row, uint32_t i, const Words<4>& data) const {
    const uint32_t scales = static_cast<uint32_t>(args_.scales_offset / 16);
    const bool by_rank = args_.layout == kRowsByRank;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < (by_rank ? 1 : args_.top_k); ++k) {
      const uint32_t place = by_rank ? first + row : shared_.places[row * args_.top_k + k];
      if (place == kNone) continue;
      if (i >= scales) {
        RowOutputs(args_).scale_packet(data, i - scales, place, shared_.experts[row * args_.top_k + k]);
      } else if (args_.output != nullptr) {
        Bytes(args_.output, uint64_t{place} * args_.payload_bytes, args_.payload_bytes).store(i, data);
      }
    }
  }

  /// Writes what becomes of the listed pairs beside their rows, and keeps what combines need of them.
  SYMMETRA_DEVICE void describe(uint32_t first, uint32_t count) const {
    const bool by_rank = args_.layout == kRowsByRank;
    const Heads heads(args_);
    each_pair(count, [&](uint32_t row, uint32_t i) {
      const uint32_t source = source_of(row), token = token_of(row), k = i - row * args_.top_k, pair = token * args_.top_k + k;
      const uint32_t expert = shared_.experts[i], pair_place = shared_.places[i];
      const bool here = expert != kNone;
      const float weight = await_weight(source, pair);
      if (waiter_.gave_up()) return;
      if (source != args_.rank) {  // of the own head the sending kernel keeps all
        heads.copies(source)[pair] = static_cast<uint16_t>(copy_of(source, pair));
        heads.weights(source)[pair] = weight;
      }
      if (!by_rank && !here) return;
      const uint64_t place = by_rank ? first + row : pair_place, at = by_rank ? place * args_.top_k + k : place;
      if (args_.into.ids != nullptr) args_.into.ids[at] = here ? static_cast<int32_t>(expert) : -1;
      if (args_.into.weights != nullptr) args_.into.weights[at] = here ? weight : 0.0f;
      if (args_.into.sources != nullptr && (!by_rank || k == 0)) {
        args_.into.sources[place * 2] = source;
        args_.into.sources[place * 2 + 1] = token;
      }
      if (by_rank && here && args_.into.index != nullptr) args_.into.index[pair_place] = first + row;
    });
  }

  const ExpertArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  ReceiveShared shared_;
  uint32_t before_ = 0;  ///< rows that come to this rank, ahead of this thread's run
  uint32_t rows_ = 0;    ///< rows that come to this rank
};

/// Awaits the heads of all ranks and the rows that come here, and puts the rows into their places. Behind its sending kernel
/// it starts at once: what it reads comes in packets or was there before that kernel.
template <class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_receive(SYMMETRA_ARGS(ExpertArgs) args) {
  if (args.follows == 0) platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  Receive<Protocol> receive(args, packets, waiter, platform::shared<uint32_t>());
  if (receive.heads()) {
    if (receive.count()) {
      platform::sync_block();
      receive.keep();
      receive.rows();
    }
    receive.scrub();
  } else if (platform::block() == 0 && platform::thread() == 0) {
    ExpertState(args).failed() = 1;
  }
  if (args.follows != 0) platform::wait_prior();
  platform::release_next();
  platform::sync_block();
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
