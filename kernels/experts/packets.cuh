// Dispatch in packets that prove their own arrival, for few tokens: no barrier, no all-gather. A sending kernel waits for
// nobody, and a receiving kernel for sending kernels alone. A row goes once to each rank that has an expert of the token, to
// the slot of its source and token, so no rank needs a count beforehand.
//
// Buffers rotate by epoch, twice as many as dispatches may be between their two halves. Who begins call k + 2F has ended the
// receive of call k + F, which heard from all; so all had begun call k + F, and had ended the receive of call k with its
// clears, behind the end of a kernel. F is `buffers` / 2.
#pragma once
#include "kernels/call.cuh"
#include "kernels/experts/rows.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// Words of a head ahead of the copies of its pairs.
constexpr uint32_t kHeadWords = sizeof(ExpertHead) / 4;

/// How rows travel: sixteen bytes a packet, of which four bytes that mean "not arrived" are replaced; or eight, bit for bit.
using RowProtocol = Sentinel<F32>;
using ByteProtocol = LL<I64>;

/// The packets of one call.
class ExpertPackets {
 public:
  SYMMETRA_DEVICE ExpertPackets(const ExpertArgs& args, uint32_t epoch)
      : args_(args), epoch_(epoch), start_(epoch % args.buffers * args.buffer_bytes) {}

  SYMMETRA_DEVICE uint32_t epoch() const { return epoch_; }
  /// A packet of what `source` tells `rank`.
  SYMMETRA_DEVICE Packet* telling(uint32_t rank, uint32_t source, uint32_t i) const {
    return at(rank, args_.tellings_offset) + uint64_t{source} * args_.telling_packets + i;
  }
  /// The packets of row `number` in the memory of `rank`, of so many packets a row.
  SYMMETRA_DEVICE Packet* row(uint32_t rank, uint64_t number, uint32_t packets) const {
    return at(rank, args_.travelling_offset) + number * packets;
  }

  /// Words of what `source` tells this rank, once they have arrived.
  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const {
    return static_cast<uint32_t>(platform::load_relaxed(&telling(args_.rank, source, i / 2)->half[i % 2]));
  }
  SYMMETRA_DEVICE uint32_t copy(uint32_t source, uint32_t pair) const {
    return word(source, kHeadWords + pair / 2) >> pair % 2 * 16 & 0xFFFF;
  }
  SYMMETRA_DEVICE float weight(uint32_t source, uint32_t tokens, uint32_t pair) const {
    return platform::f32_of(word(source, kHeadWords + (tokens * args_.top_k + 1) / 2 + pair));
  }
  /// Packets of a head of so many tokens.
  SYMMETRA_DEVICE uint32_t head_packets(uint32_t tokens) const {
    const uint32_t pairs = tokens * args_.top_k;
    return (kHeadWords + (pairs + 1) / 2 + pairs + 1) / 2;
  }

 private:
  SYMMETRA_DEVICE Packet* at(uint32_t rank, uint64_t offset) const {
    return reinterpret_cast<Packet*>(args_.regions[rank] + offset + start_);
  }

  const ExpertArgs& args_;
  uint32_t epoch_;
  uint64_t start_;
};

/// Packets of a row that travels.
template <class Protocol>
SYMMETRA_DEVICE uint32_t row_packets(uint64_t row_bytes) {
  return static_cast<uint32_t>(row_bytes / sizeof(typename Protocol::Data));
}

/// Sends sixteen bytes of a row. `quiet`: what replaces four bytes that mean "not arrived".
template <class Protocol>
SYMMETRA_DEVICE void send_bytes(Packet* row, uint32_t i, Words<4> data, uint32_t quiet, uint32_t epoch) {
  if constexpr (Protocol::kClears) {
    SYMMETRA_UNROLL
    for (uint32_t word = 0; word < 4; ++word) data.word[word] = data.word[word] == Protocol::kMissing ? quiet : data.word[word];
    platform::store_packet(row + i, Protocol::encode(data, epoch));
  } else {
    platform::store_packet(row + 2 * i, Protocol::encode({{data.word[0], data.word[1]}}, epoch));
    platform::store_packet(row + 2 * i + 1, Protocol::encode({{data.word[2], data.word[3]}}, epoch));
  }
}

/// Awaits sixteen bytes of a row of `peer`, and clears them. Undefined when the wait gave up.
template <class Protocol>
SYMMETRA_DEVICE Words<4> await_bytes(device::Waiter& waiter, uint32_t peer, Packet* row, uint32_t i, uint32_t epoch) {
  const auto await = [&](Packet* from) {
    Packet packet;
    waiter.until(peer, [&] {
      packet = platform::load_packet(from);
      return Protocol::arrived(packet, epoch);
    });
    return Protocol::decode(packet);
  };
  if constexpr (Protocol::kClears) {
    const Words<4> data = await(row + i);
    if (!waiter.gave_up()) platform::store_packet(row + i, Protocol::empty());
    return data;
  } else {
    const Words<2> low = await(row + 2 * i), high = await(row + 2 * i + 1);
    return {{low.word[0], low.word[1], high.word[0], high.word[1]}};
  }
}

/// Writes the head to every rank. One block.
SYMMETRA_DEVICE void send_head(const ExpertArgs& args, const Asked& asked, const ExpertPackets& packets, uint32_t* words) {
  const ExpertHead head = asked.head(words);
  const uint32_t pairs = head.tokens * args.top_k;
  const auto word = [&](uint32_t i) -> uint32_t {
    const auto bad = static_cast<uint64_t>(head.bad_expert);
    const uint32_t first[kHeadWords] = {
        head.tokens, head.claimed, head.room, head.bad_token, static_cast<uint32_t>(bad), static_cast<uint32_t>(bad >> 32), 0, 0};
    if (i < kHeadWords) return first[i];
    const uint32_t two = (i - kHeadWords) * 2;
    if (two < pairs) return asked.copy(two) | uint32_t{two + 1 < pairs ? asked.copy(two + 1) : kNoCopy} << 16;
    const uint32_t pair = i - kHeadWords - (pairs + 1) / 2;
    return platform::bits_of(args.weights != nullptr && pair < pairs ? args.weights[pair] : 1.0f);
  };
  for (uint32_t i = platform::thread(); i < packets.head_packets(head.tokens); i += platform::threads()) {
    const Packet packet = ByteProtocol::encode({{word(2 * i), word(2 * i + 1)}}, packets.epoch());
    for (uint32_t k = 1; k <= args.world; ++k) {
      const uint32_t rank = args.rank + k < args.world ? args.rank + k : args.rank + k - args.world;
      platform::store_packet(packets.telling(rank, args.rank, i), packet);
    }
  }
}

/// Sends a row to the ranks of its token's experts, by all threads of the block.
template <class Element, class Protocol>
SYMMETRA_DEVICE void send_packets(const ExpertArgs& args, const Asked& asked, const ExpertPackets& packets, uint32_t token) {
  const ExpertTable table(args);
  uint32_t targets = 0;
  for (uint32_t k = 0; k < args.top_k; ++k) {
    const uint16_t copy = asked.copy(token * args.top_k + k);
    if (copy != kNoCopy) targets |= 1u << table.rank_of(copy);
  }
  if (targets == 0) return;
  const uint64_t number = uint64_t{args.rank} * args.max_tokens + token;
  const auto spread = [&](const Bytes& from, uint64_t offset, uint32_t quiet) {
    for (uint32_t i = platform::thread(); i < from.packets(); i += platform::threads()) {
      const Words<4> data = from.load(i);
      for (uint32_t k = 1; k <= args.world; ++k) {
        const uint32_t rank = args.rank + k < args.world ? args.rank + k : args.rank + k - args.world;
        if ((targets >> rank & 1) == 0) continue;
        Packet* const row = packets.row(rank, number, row_packets<Protocol>(args.row_bytes));
        send_bytes<Protocol>(row, static_cast<uint32_t>(offset / 16) + i, data, quiet, packets.epoch());
      }
    }
  };
  const uint32_t codes_quiet = F8E4M3::kQuietNan, scales_quiet = args.scales == kCodeScalesE8M0 ? F8E4M3::kQuietNan : F32::kQuietNan;
  if constexpr (Element::kFloating) {
    // Through own memory, because four scales of a packet come from threads of four groups.
    encode_row<Element>(args, token, OwnRegion(args, token));
    platform::sync_block();
    const uint8_t* const staged = travelling(args, args.rank, token);
    const uint64_t scale_bytes = code_groups(args) * (args.scales == kCodeScalesE8M0 ? 1 : 4);
    spread(Bytes(staged, 0, args.payload_bytes), 0, codes_quiet);
    spread(Bytes(staged, args.scales_offset, static_cast<uint32_t>(scale_bytes)), args.scales_offset, scales_quiet);
  } else {
    const bool codes = args.wire == kWireGivenF8;
    const uint32_t quiet = codes ? codes_quiet : args.dtype == kF32 ? F32::kQuietNan : BF16::kQuietNan;
    spread(Bytes(args.rows, uint64_t{token} * args.payload_bytes, args.payload_bytes), 0, quiet);
    if (!codes) return;
    const uint32_t bytes = code_groups(args) * 4;
    spread(Bytes(args.row_scales, uint64_t{token} * bytes, bytes), args.scales_offset, scales_quiet);
  }
}

/// Sends the head to all ranks, and each row to the ranks of its token's experts. A block takes the head or a token.
template <class Element, class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_send(SYMMETRA_ARGS(ExpertArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  const Asked asked(args);
  const uint32_t units = call.poisoned != 0 ? 0 : asked.tokens() + 1;
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    if (unit == 0) {
      send_head(args, asked, packets, words);
    } else {
      send_packets<Element, Protocol>(args, asked, packets, unit - 1);
    }
  }
  platform::release_next();
  platform::sync_block();  // all have read the state
  end_telling(args.calls, call.epoch, 0);
}

/// What a block of the receiving kernel shares, in its memory.
struct ReceiveShared {
  uint32_t* scan;     ///< two words a thread
  uint32_t* pairs;    ///< for each copy: pairs of all ranks
  uint32_t* tokens;   ///< for each rank: tokens that go there
  uint32_t* before;   ///< for each local expert: pairs of rows ahead of the block's
  uint32_t* offsets;  ///< for each local expert: its first row, and behind the last
  uint32_t* list;     ///< the block's rows: source and token as one number
  uint32_t* experts;  ///< for each pair of the list: the local expert, or kNone
  uint32_t* places;   ///< for each pair of the list: its place, or kNone

  SYMMETRA_DEVICE ReceiveShared(const ExpertArgs& args, uint32_t* words)
      : scan(words),
        pairs(scan + 2 * platform::threads()),
        tokens(pairs + args.copies),
        before(tokens + kMaxWorld),
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

  /// Awaits all heads. False on all threads: the wait gave up.
  SYMMETRA_DEVICE bool heads() {
    const auto await = [&](uint32_t source, uint32_t i) {
      waiter_.until(
          source, [&] { return ByteProtocol::arrived(platform::load_packet(packets_.telling(args_.rank, source, i)), packets_.epoch()); });
    };
    for (uint32_t i = platform::thread(); i < args_.world * (kHeadWords / 2); i += platform::threads())
      await(i / (kHeadWords / 2), i % (kHeadWords / 2));
    if (platform::sync_block_or(waiter_.gave_up())) return false;
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t count = packets_.head_packets(tokens(source));
      for (uint32_t i = kHeadWords / 2 + platform::thread(); i < count; i += platform::threads()) await(source, i);
    }
    return !platform::sync_block_or(waiter_.gave_up());
  }

  /// Counts pairs and tokens, and finds what is wrong with them: all ranks find the same. Every block counts.
  SYMMETRA_DEVICE bool count() {
    for (uint32_t i = platform::thread(); i < args_.copies + kMaxWorld; i += platform::threads()) shared_.pairs[i] = 0;
    platform::sync_block();
    const ExpertTable table(args_);
    uint32_t mine = 0;
    each_unit([&](uint32_t unit, uint32_t source, uint32_t token) {
      uint32_t targets = 0;
      for (uint32_t k = 0; k < args_.top_k; ++k) {
        const uint32_t copy = packets_.copy(source, token * args_.top_k + k);
        if (copy == kNoCopy) continue;
        platform::add_shared(shared_.pairs + copy, 1);
        targets |= 1u << table.rank_of(static_cast<uint16_t>(copy));
      }
      for (uint32_t rank = 0; rank < args_.world; ++rank) {
        if ((targets >> rank & 1) != 0) platform::add_shared(shared_.tokens + rank, 1);
      }
      const bool comes = (targets >> args_.rank & 1) != 0;
      mine += comes;
      if (!comes && unit % platform::blocks() == platform::block()) Places(args_).tokens[unit] = kNone;
    });
    const Scanned scanned = block_scan(mine, shared_.scan);
    before_ = scanned.before;
    rows_ = scanned.all;
    return !is_wrong();
  }

  /// Finds where the rows of each local expert begin; the first block tells what was counted.
  SYMMETRA_DEVICE void offsets(bool wrong) {
    const ExpertState state(args_);
    const bool tells = platform::block() == 0;
    if (tells && platform::thread() == 0) state.failed() = wrong;
    if (wrong) return;
    const Run run(args_.local);
    uint32_t mine = 0;
    for (uint32_t expert = run.begin; expert < run.end; ++expert) mine += aligned_rows(args_, shared_.pairs[args_.first_copy + expert]);
    const Scanned scanned = block_scan(mine, shared_.scan);
    const bool padded = args_.layout == kRowsPadded;
    uint32_t offset = scanned.before;
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
      const uint32_t end = padded ? args_.local * static_cast<uint32_t>(args_.capacity) : scanned.all;
      state.rows() = args_.layout == kRowsByRank ? rows_ : end;
      if (args_.into.offsets != nullptr) args_.into.offsets[args_.local] = end;
    }
  }

  /// Receives the block's rows, as many at once as fit its memory.
  SYMMETRA_DEVICE void rows() {
    for (uint32_t first = platform::block() * args_.rows_at_once; first < rows_; first += platform::blocks() * args_.rows_at_once) {
      const uint32_t end = rows_ - first < args_.rows_at_once ? rows_ : first + args_.rows_at_once;
      find(first, end);
      take(first, end - first);
      platform::sync_block();  // all have read the list
    }
  }

  /// Keeps what combines need of the heads, in shares of blocks.
  SYMMETRA_DEVICE void keep() const {
    const Heads heads(args_);
    const uint32_t mine = platform::block() * platform::threads() + platform::thread(), step = platform::blocks() * platform::threads();
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t count = tokens(source), pairs = count * args_.top_k;
      if (mine == source % step) *heads.head(source) = {count, count, count, kNone, 0, 0};
      for (uint32_t pair = mine; pair < pairs; pair += step) {
        heads.copies(source)[pair] = static_cast<uint16_t>(packets_.copy(source, pair));
        heads.weights(source)[pair] = packets_.weight(source, count, pair);
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
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return packets_.word(source, 0); }

  /// Calls `body(unit, source, token)` for the tokens of this thread's run.
  template <class Body>
  SYMMETRA_DEVICE void each_unit(Body body) const {
    const Run run(args_.world * args_.max_tokens);
    for (uint32_t unit = run.begin; unit < run.end; ++unit) {
      const uint32_t source = unit / args_.max_tokens, token = unit % args_.max_tokens;
      if (token < tokens(source)) body(unit, source, token);
    }
  }

  SYMMETRA_DEVICE uint32_t local_expert(uint32_t source, uint32_t token, uint32_t k) const {
    const uint32_t copy = packets_.copy(source, token * args_.top_k + k) - args_.first_copy;
    return copy < args_.local ? copy : kNone;
  }

  SYMMETRA_DEVICE bool is_wrong() const {
    const auto found = [&](uint32_t code, uint32_t peer, uint64_t first, uint64_t second) {
      if (platform::block() == 0 && platform::thread() == 0) device::report(args_.wait, code, args_.op, peer, 0, first, second);
      return true;
    };
    for (uint32_t source = 0; source < args_.world; ++source) {
      const uint32_t claimed = packets_.word(source, 1), room = packets_.word(source, 2), token = packets_.word(source, 3);
      if (claimed > room) return found(kStatusCapacity, source, claimed, room);
      const uint64_t expert = uint64_t{packets_.word(source, 5)} << 32 | packets_.word(source, 4);
      if (token != kNone) return found(kStatusRouting, source, uint64_t{args_.experts} << 32 | token, expert);
    }
    const ExpertTable table(args_);
    for (uint32_t rank = 0; rank < args_.world; ++rank) {
      uint32_t all = 0, most = 0;
      for (uint32_t copy = table.first_copy(rank) + platform::thread(); copy < table.first_copy(rank + 1); copy += platform::threads()) {
        all += aligned_rows(args_, shared_.pairs[copy]);
        most = shared_.pairs[copy] > most ? shared_.pairs[copy] : most;
      }
      const uint32_t rows = args_.layout == kRowsByRank   ? shared_.tokens[rank]
                            : args_.layout == kRowsPadded ? block_max(most, shared_.scan)
                                                          : block_scan(all, shared_.scan).all;
      if (rows > args_.capacity) return found(kStatusCapacity, rank, rows, args_.capacity);
    }
    return false;
  }

  /// Lists rows [first, end) of those that come, and finds the place of each of their pairs.
  SYMMETRA_DEVICE void find(uint32_t first, uint32_t end) {
    for (uint32_t expert = platform::thread(); expert < args_.local; expert += platform::threads()) shared_.before[expert] = 0;
    platform::sync_block();
    uint32_t row = before_;
    each_unit([&](uint32_t unit, uint32_t source, uint32_t token) {
      bool comes = false;
      for (uint32_t k = 0; k < args_.top_k; ++k) comes |= local_expert(source, token, k) != kNone;
      if (!comes) return;
      if (row >= first && row < end) shared_.list[row - first] = unit;
      for (uint32_t k = 0; k < args_.top_k && row < first; ++k) {
        const uint32_t expert = local_expert(source, token, k);
        if (expert != kNone) platform::add_shared(shared_.before + expert, 1);
      }
      ++row;
    });
    platform::sync_block();
    const uint32_t pairs = (end - first) * args_.top_k;
    for (uint32_t i = platform::thread(); i < pairs; i += platform::threads()) {
      const uint32_t unit = shared_.list[i / args_.top_k];
      shared_.experts[i] = local_expert(unit / args_.max_tokens, unit % args_.max_tokens, i % args_.top_k);
    }
    platform::sync_block();
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
    const bool by_rank = args_.layout == kRowsByRank;
    const uint32_t packets = static_cast<uint32_t>(args_.row_bytes / 16), scales = static_cast<uint32_t>(args_.scales_offset / 16);
    const RowOutputs outputs(args_);
    for (uint32_t item = platform::thread(); item < count * packets; item += platform::threads()) {
      const uint32_t row = item / packets, i = item % packets, unit = shared_.list[row];
      Packet* const from = packets_.row(args_.rank, unit, row_packets<Protocol>(args_.row_bytes));
      const Words<4> data = await_bytes<Protocol>(waiter_, unit / args_.max_tokens, from, i, packets_.epoch());
      if (waiter_.gave_up()) continue;
      const auto put = [&](uint32_t place, uint32_t expert) {
        if (i >= scales) {
          outputs.scale_packet(data, i - scales, place, expert);
        } else if (args_.output != nullptr) {
          Bytes(args_.output, uint64_t{place} * args_.payload_bytes, args_.payload_bytes).store(i, data);
        }
      };
      if (by_rank) put(first + row, 0);
      for (uint32_t k = 0; k < args_.top_k && !by_rank; ++k) {
        const uint32_t pair = row * args_.top_k + k;
        if (shared_.places[pair] != kNone) put(shared_.places[pair], shared_.experts[pair]);
      }
    }
    for (uint32_t i = platform::thread(); i < count * args_.top_k; i += platform::threads()) describe(first, i);
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
      if (args_.into.weights != nullptr) args_.into.weights[at] = here ? packets_.weight(source, tokens(source), pair) : 0.0f;
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
  uint32_t before_ = 0;  ///< rows that come to this rank, ahead of this thread's run
  uint32_t rows_ = 0;    ///< rows that come to this rank
};

/// Awaits the heads of all ranks and the rows that come here, and puts the rows into their places.
template <class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_receive(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  Receive<Protocol> receive(args, packets, waiter, platform::shared<uint32_t>());
  if (receive.heads()) {
    const bool right = receive.count();
    receive.offsets(!right);
    platform::sync_block();
    if (right) {
      receive.rows();
      receive.keep();
    }
    receive.scrub();
  } else if (platform::block() == 0 && platform::thread() == 0) {
    ExpertState(args).failed() = 1;
  }
  platform::release_next();
  platform::sync_block();
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
