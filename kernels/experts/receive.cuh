// The receiving half of a dispatch in packets. Every block learns all heads and finds its own rows, so that blocks need not
// wait for each other.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// What a block of the receiving kernel shares, in its memory.
struct ReceiveShared {
  uint32_t* scan;     ///< kScanWords a thread
  uint32_t* heads;    ///< kHeadWords a rank
  uint32_t* pairs;    ///< for each copy: pairs of all ranks
  uint32_t* before;   ///< for each local expert: pairs of rows ahead of the block's
  uint32_t* offsets;  ///< for each local expert: its first row, and behind the last
  uint32_t* list;     ///< the block's rows: source and token as one number
  uint32_t* experts;  ///< for each pair of the list: the local expert, or kNone
  uint32_t* places;   ///< for each pair of the list: its place, or kNone
  uint32_t* copies;   ///< of the pairs of all ranks, two a word, where they fit

  SYMMETRA_DEVICE ReceiveShared(const ExpertArgs& args, uint32_t* words)
      : scan(words),
        heads(scan + kScanWords * platform::threads()),
        pairs(heads + kHeadWords * args.world),
        before(pairs + args.copies),
        offsets(before + args.local),
        list(offsets + args.local + 1),
        experts(list + args.rows_at_once),
        places(experts + args.rows_at_once * args.top_k),
        copies(places + args.rows_at_once * args.top_k) {}
};

/// One receive, from the view of a block.
template <class Protocol>
class Receive {
 public:
  SYMMETRA_DEVICE Receive(const ExpertArgs& args, const ExpertPackets& packets, device::Waiter& waiter, uint32_t* words)
      : args_(args), packets_(packets), waiter_(waiter), shared_(args, words), room_((args.max_tokens * args.top_k + 1) / 2) {}

  /// Awaits the heads of all ranks without their weights, and keeps them in the block's memory. How long a head is, its first
  /// packet says, which is looked at beside each other packet. False on all threads: the wait gave up.
  SYMMETRA_DEVICE bool heads() {
    for (uint32_t i = platform::thread(); i < args_.copies + args_.local; i += platform::threads()) shared_.pairs[i] = 0;
    const uint32_t most = copy_packets(args_.max_tokens);
    for (uint32_t item = platform::thread(); item < args_.world * most; item += platform::threads()) {
      const uint32_t source = item / most, i = item % most;
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
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t word = 2 * i + half;
        if (word < kHeadWords) {
          shared_.heads[source * kHeadWords + word] = data.word[half];
        } else if (args_.holds != 0 && word - kHeadWords < room_) {
          shared_.copies[source * room_ + word - kHeadWords] = data.word[half];
        }
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
      for (uint32_t k = 0; k < args_.top_k; ++k) {
        const uint32_t copy = copy_of(source, token * args_.top_k + k);
        if (copy == kNoCopy) continue;
        platform::add_shared(shared_.pairs + copy, 1);
        comes |= copy - args_.first_copy < args_.local;
      }
      mine += comes;
      const uint32_t unit = source * args_.max_tokens + token;
      if (!comes && unit % platform::blocks() == platform::block()) Places(args_).tokens[unit] = kNone;
    });
    platform::sync_block();
    const bool wrong = is_wrong(), tells = platform::block() == 0;
    const ExpertState state(args_);
    if (tells && platform::thread() == 0) state.failed() = wrong;
    if (wrong) return false;
    const Run run(args_.local);
    uint32_t aligned = 0;
    for (uint32_t expert = run.begin; expert < run.end; ++expert) aligned += aligned_rows(args_, shared_.pairs[args_.first_copy + expert]);
    const uint32_t values[2] = {mine, aligned};
    const Scanned<2> scanned = block_scan(values, shared_.scan);
    before_ = scanned.before[0];
    rows_ = scanned.all[0];
    const bool padded = args_.layout == kRowsPadded;
    uint32_t offset = scanned.before[1];
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
    for (uint32_t first = platform::block() * args_.rows_at_once; first < rows_; first += platform::blocks() * args_.rows_at_once) {
      const uint32_t end = rows_ - first < args_.rows_at_once ? rows_ : first + args_.rows_at_once;
      find(first, end);
      take(first, end - first);
      platform::sync_block();  // all have read the list
      for (uint32_t expert = platform::thread(); expert < args_.local; expert += platform::threads()) shared_.before[expert] = 0;
      platform::sync_block();
    }
  }

  /// Keeps what combines need of the heads, in shares of blocks. The last threads begin, because the first have rows.
  SYMMETRA_DEVICE void keep() const {
    const Heads heads(args_);
    const uint32_t mine = platform::block() * platform::threads() + backwards(), step = platform::blocks() * platform::threads();
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t count = tokens(source), pairs = count * args_.top_k;
      if (mine == source % step) *heads.head(source) = {count, count, count, kNone, 0, 0};
      for (uint32_t pair = mine; pair < pairs; pair += step) {
        heads.copies(source)[pair] = static_cast<uint16_t>(copy_of(source, pair));
        heads.weights(source)[pair] = await_weight(source, pair);
      }
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
  /// Packets of sixteen bytes that a thread looks at before it awaits the first.
  static constexpr uint32_t kAhead = platform::kTeam == 1 ? 1 : 4;

  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const { return shared_.heads[source * kHeadWords + i]; }
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return word(source, 0); }
  SYMMETRA_DEVICE uint32_t copy_of(uint32_t source, uint32_t pair) const {
    const uint32_t two = args_.holds != 0 ? shared_.copies[source * room_ + pair / 2] : packets_.word(source, kHeadWords + pair / 2);
    return two >> pair % 2 * 16 & 0xFFFF;
  }
  /// Packets of a head of so many tokens up to its last copy.
  SYMMETRA_DEVICE uint32_t copy_packets(uint32_t tokens) const { return (kHeadWords + (tokens * args_.top_k + 1) / 2 + 1) / 2; }
  SYMMETRA_DEVICE uint32_t backwards() const { return platform::threads() - 1 - platform::thread(); }

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
    for (uint32_t source = 0; source < args_.world; ++source) all += tokens(source);
    const Run run(all);
    uint32_t source = 0, begin = 0;
    for (uint32_t i = run.begin; i < run.end; ++i) {
      while (i - begin >= tokens(source)) begin += tokens(source++);
      body(source, i - begin);
    }
  }

  /// Whether the tokens are so few that no rank can receive more than it has room for.
  SYMMETRA_DEVICE bool fit() const {
    uint64_t rows = 0;
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
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t claimed = word(source, 1), room = word(source, 2), token = word(source, 3);
      if (claimed > room) return found(kStatusCapacity, source, claimed, room);
      const uint64_t expert = uint64_t{word(source, 5)} << 32 | word(source, 4);
      if (token != kNone) return found(kStatusRouting, source, uint64_t{args_.experts} << 32 | token, expert);
    }
    for (uint32_t rank = 0; rank < args_.world && !fit(); ++rank) {
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
    for (uint32_t copy = begin + platform::thread(); copy < end; copy += platform::threads()) {
      all += aligned_rows(args_, shared_.pairs[copy]);
      most = shared_.pairs[copy] > most ? shared_.pairs[copy] : most;
    }
    return args_.layout == kRowsPadded ? block_max(most, shared_.scan) : block_sum(all, shared_.scan);
  }

  /// Lists rows [first, end) of those that come, and finds the place of each of their pairs.
  SYMMETRA_DEVICE void find(uint32_t first, uint32_t end) {
    uint32_t row = before_;
    each_token([&](uint32_t source, uint32_t token) {
      const auto local = [&](uint32_t k) { return copy_of(source, token * args_.top_k + k) - args_.first_copy; };
      bool comes = false;
      for (uint32_t k = 0; k < args_.top_k; ++k) comes |= local(k) < args_.local;
      if (!comes) return;
      const uint32_t mine = row++;
      if (mine >= end) return;
      if (mine >= first) shared_.list[mine - first] = source * args_.max_tokens + token;
      for (uint32_t k = 0; k < args_.top_k; ++k) {
        const uint32_t expert = local(k);
        const bool here = expert < args_.local;
        if (mine >= first) {
          shared_.experts[(mine - first) * args_.top_k + k] = here ? expert : kNone;
        } else if (here) {
          platform::add_shared(shared_.before + expert, 1);
        }
      }
    });
    platform::sync_block();
    const uint32_t pairs = (end - first) * args_.top_k;
    const Places places(args_);
    for (uint32_t i = platform::thread(); i < pairs; i += platform::threads()) {
      const uint32_t expert = shared_.experts[i], unit = shared_.list[i / args_.top_k];
      uint32_t place = kNone;
      if (expert != kNone) {
        place = shared_.offsets[expert] + shared_.before[expert];
        for (uint32_t earlier = 0; earlier < i; ++earlier) place += shared_.experts[earlier] == expert;
        places.pairs[uint64_t{unit} * args_.top_k + i % args_.top_k] = place;
      }
      shared_.places[i] = place;
      if (i % args_.top_k == 0) places.tokens[unit] = first + i / args_.top_k;
    }
    platform::sync_block();
  }

  /// Awaits `count` listed rows, of which the first is row `first` of those that come, and puts them into their places.
  SYMMETRA_DEVICE void take(uint32_t first, uint32_t count) {
    const uint32_t packets = static_cast<uint32_t>(args_.row_bytes / 16), items = count * packets, step = platform::threads();
    for (uint32_t i = backwards(); i < count * args_.top_k; i += step) describe(first, i);
    for (uint32_t begin = platform::thread(); begin < items; begin += kAhead * step) {
      Incoming<Protocol> incoming[kAhead];
      SYMMETRA_UNROLL
      for (uint32_t ahead = 0; ahead < kAhead; ++ahead) {
        const uint32_t item = begin + ahead * step;
        if (item >= items) break;
        Packet* const row = packets_.row(args_.rank, shared_.list[item / packets], row_packets<Protocol>(args_.row_bytes));
        incoming[ahead].look(row, item % packets);
      }
      SYMMETRA_UNROLL
      for (uint32_t ahead = 0; ahead < kAhead; ++ahead) {
        const uint32_t item = begin + ahead * step, row = item / packets;
        if (item >= items) break;
        const Words<4> data = incoming[ahead].await(waiter_, shared_.list[row] / args_.max_tokens, packets_.epoch());
        if (!waiter_.gave_up()) put(first, row, item % packets, data);
      }
    }
  }

  /// Puts packet `i` of a listed row into the row's places.
  SYMMETRA_DEVICE void put(uint32_t first, uint32_t row, uint32_t i, const Words<4>& data) const {
    const uint32_t scales = static_cast<uint32_t>(args_.scales_offset / 16);
    const auto put_at = [&](uint32_t place, uint32_t expert) {
      if (i >= scales) {
        RowOutputs(args_).scale_packet(data, i - scales, place, expert);
      } else if (args_.output != nullptr) {
        Bytes(args_.output, uint64_t{place} * args_.payload_bytes, args_.payload_bytes).store(i, data);
      }
    };
    if (args_.layout == kRowsByRank) return put_at(first + row, 0);
    for (uint32_t pair = row * args_.top_k; pair < (row + 1) * args_.top_k; ++pair) {
      if (shared_.places[pair] != kNone) put_at(shared_.places[pair], shared_.experts[pair]);
    }
  }

  /// Writes what becomes of a listed pair beside its row.
  SYMMETRA_DEVICE void describe(uint32_t first, uint32_t i) const {
    const uint32_t row = i / args_.top_k, unit = shared_.list[row], source = unit / args_.max_tokens, token = unit % args_.max_tokens;
    const uint32_t expert = shared_.experts[i], pair_place = shared_.places[i];
    const bool by_rank = args_.layout == kRowsByRank, here = expert != kNone;
    const uint64_t at = by_rank ? uint64_t{first + row} * args_.top_k + i % args_.top_k : pair_place;
    if (by_rank || here) {
      if (args_.into.ids != nullptr) args_.into.ids[at] = here ? static_cast<int32_t>(expert) : -1;
      const uint32_t pair = token * args_.top_k + i % args_.top_k;
      if (args_.into.weights != nullptr) args_.into.weights[at] = here ? await_weight(source, pair) : 0.0f;
    }
    const uint64_t place = by_rank ? first + row : pair_place;
    if (args_.into.sources != nullptr && (by_rank ? i % args_.top_k == 0 : here)) {
      args_.into.sources[place * 2] = source;
      args_.into.sources[place * 2 + 1] = token;
    }
    if (by_rank && here && args_.into.index != nullptr) args_.into.index[pair_place] = first + row;
  }

  const ExpertArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  ReceiveShared shared_;
  uint32_t room_;        ///< words for the copies of a head in the block's memory
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
      receive.rows();
      receive.keep();
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
