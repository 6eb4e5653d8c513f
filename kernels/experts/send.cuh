// The sending half of a dispatch in packets.
#pragma once
#include "kernels/experts/packets.cuh"
#include "kernels/experts/row_stream.cuh"

namespace symmetra::kernels {

/// Sends packet `i` of the routing header to every rank.
SYMMETRA_DEVICE void send_control(const ExpertArgs& args, const ExpertPackets& packets, uint32_t i, const Words<2>& data) {
  const Packet packet = ByteProtocol::encode(data, packets.epoch());
  each_rank(args, [&](uint32_t rank) { platform::store_packet(packets.control(rank, args.rank, i), packet); });
}

/// Pairs of a routing header that a block finds and sends. Packets of replicas begin at multiples of four pairs.
SYMMETRA_DEVICE uint32_t header_run() { return (platform::threads() + 3) / 4 * 4; }

/// The number of runs of pairs in the own routing header.
SYMMETRA_DEVICE uint32_t header_runs(const ExpertArgs& args) {
  const uint32_t room = args.tokens * args.top_k;
  return room == 0 ? 1 : (room + header_run() - 1) / header_run();
}

/// Sends the fixed part of the routing header to every rank. The last threads send it, because they have the least
/// other work.
SYMMETRA_DEVICE void send_fixed_part(const ExpertArgs& args, const ExpertPackets& packets, const RoutingHeader& header) {
  const auto expert = static_cast<uint64_t>(header.bad_expert);
  SYMMETRA_ROLLED
  for (uint32_t i = platform::threads() - 1 - platform::thread(); i < kHeaderWords / 2; i += platform::threads()) {
    const uint32_t first_word = i == 0 ? header.tokens : i == 1 ? header.room : i == 2 ? static_cast<uint32_t>(expert) : header.wrong;
    const uint32_t second_word = i == 0 ? header.claimed : i == 1 ? header.bad_token : i == 2 ? static_cast<uint32_t>(expert >> 32) : 0;
    send_control(args, packets, i, {{first_word, second_word}});
  }
}

/// By source, sends the fixed part of the routing header to every rank; the blocks of the tokens send the pairs.
/// `words`: in block-shared memory.
SYMMETRA_DEVICE void send_counts(const SendArgs& args, const Asked& asked, const Call& call, uint32_t* words) {
  const uint32_t room = args.tokens * args.top_k;
  uint32_t first_bad = kNone;
  SYMMETRA_ROLLED
  for (uint32_t pair = platform::thread(); pair < room; pair += platform::threads()) {
    const int64_t expert = asked.expert(pair);
    if (pair < first_bad && pair < asked.pairs() && asked.is_bad(expert)) first_bad = pair;
  }
  const RoutingHeader header = asked.header(platform::sync_block_or(first_bad != kNone), first_bad, words);
  if (call.poisoned == 0) send_fixed_part(args, ExpertPackets(args, args.packets, call.epoch), header);
}

/// Writes run `number` of the routing header to every rank, and stores what combines need of it. A thread finds the
/// replicas of pairs, then sends packets of the replicas that all threads have found. The first run includes the fixed
/// part of the header, so its block validates all pairs. The loads depend neither on the state nor on the token count,
/// so that they are all in flight at once. `words`: in block-shared memory, two for each pair of a run.
SYMMETRA_DEVICE void send_header(const SendArgs& args, const Asked& asked, const Call& call, uint32_t number, uint32_t* words) {
  const Headers headers(args);
  const uint32_t room = args.tokens * args.top_k, threads = platform::threads(), mine = platform::thread();
  const uint32_t run = header_run(), first = number * run;
  uint32_t* const replicas = words;
  uint32_t* const weights = words + run;
  uint32_t first_bad = kNone;
  const auto judge = [&](uint32_t pair, int64_t expert) {
    if (pair < first_bad && pair < asked.pairs() && asked.is_bad(expert)) first_bad = pair;
  };
  for (uint32_t pair = run + mine; number == 0 && pair < room; pair += threads) judge(pair, asked.expert(pair));
  SYMMETRA_ROLLED
  for (uint32_t i = mine; i < run; i += threads) {
    const uint32_t pair = first + i;
    const int64_t expert = pair < room ? asked.expert(pair) : -1;
    const uint32_t weight = platform::bits_of(args.routing.weights != nullptr && pair < room ? args.routing.weights[pair] : 1.0f);
    const uint16_t replica = asked.target(pair, expert).replica;
    replicas[i] = replica;
    weights[i] = weight;
    if (pair >= asked.pairs()) continue;
    judge(pair, expert);
    headers.replicas(args.rank)[pair] = replica;
    headers.weights(args.rank)[pair] = platform::f32_of(weight);
  }
  const bool bad = platform::sync_block_or(first_bad != kNone);
  const uint32_t pairs = asked.pairs();
  const ExpertPackets packets(args, args.packets, call.epoch);
  if (call.poisoned == 0 && first < pairs) {
    const uint32_t quarter = run / 4, left = pairs - first < run ? pairs - first : run;
    SYMMETRA_ROLLED
    for (uint32_t i = mine; i < 3 * quarter; i += threads) {
      const uint32_t two = i - quarter;
      if (i < quarter && i * 4 < left) {
        send_control(args, packets, (kHeaderWords + first / 2) / 2 + i,
                     {{replicas[4 * i] | replicas[4 * i + 1] << 16, replicas[4 * i + 2] | replicas[4 * i + 3] << 16}});
      }
      if (i >= quarter && two * 2 < left) {
        send_control(args, packets, packets.weights_at() + first / 2 + two, {{weights[2 * two], weights[2 * two + 1]}});
      }
    }
  }
  if (number != 0) return;
  if (bad) platform::sync_block();  // all threads have read the lists
  const RoutingHeader header = asked.header(bad, first_bad, words);
  if (call.poisoned == 0) send_fixed_part(args, packets, header);
}

/// Sends the row of a token to the ranks of its experts, by all threads of the block; by source, also sends its pairs
/// and their weights to all ranks.
template <class Protocol>
class RowSender {
 public:
  /// Words of block-shared memory: three for each expert of a token.
  static constexpr uint32_t kWords = 3 * kMostTopK;

  /// Begins to find the targets.
  SYMMETRA_DEVICE RowSender(const SendArgs& args, const Asked& asked, const Call& call, uint32_t token, uint32_t* words)
      : args_(args),
        asked_(asked),
        call_(call),
        token_(token),
        targets_(args, words),
        replicas_(words + kMostTopK),
        weights_(replicas_ + kMostTopK) {
    const auto rank = [&](uint32_t k) {
      const uint32_t pair = token * args.top_k + k;
      // Loaded concurrently with the expert.
      const float weight = sends_pairs() && args.routing.weights != nullptr ? args.routing.weights[pair] : 1.0f;
      const Target target = asked.target(pair);
      replicas_[k] = target.replica;
      weights_[k] = platform::bits_of(weight);
      return uint32_t{target.rank};
    };
    targets_.begin(rank, !sends());
  }
  /// Reads the targets. All threads call it. Returns false on all threads if the token is not sent. One thread decides
  /// for all: threads could disagree, because another stream may write the count, and another block may be failing.
  SYMMETRA_DEVICE bool meet() {
    targets_.meet();
    return !targets_.skips();
  }
  /// Sends sixteen bytes, after `meet`.
  SYMMETRA_DEVICE void send(const ExpertPackets& packets, uint32_t i, const Words<4>& data, uint32_t quiet) const {
    const uint64_t number = uint64_t{args_.rank} * args_.max_tokens + token_;
    targets_.each([&](uint32_t rank) {
      send_bytes<Protocol>(packets.row(rank, number, row_packets<Protocol>(args_.row_bytes)), i, data, quiet, call_.epoch);
    });
  }
  /// By source, sends the pairs, before or after `meet`. The threads that found the targets send them.
  SYMMETRA_DEVICE void send_pairs(const ExpertPackets& packets) const {
    if (!sends_pairs() || !sends()) return;
    for (uint32_t k = from_end(); k < args_.top_k; k += platform::threads()) send_pair(packets, k);
  }
  /// Stores for combines whether the row is on a rank, for layouts with one row for each token; called after `meet`. By
  /// rank only the receiver knows the place of the row.
  SYMMETRA_DEVICE void keep() const {
    const uint32_t ranks = is_by_token(args_) ? args_.world : 0, place = args_.rank * args_.max_tokens + token_;
    for (uint32_t rank = from_end(); rank < ranks; rank += platform::threads()) {
      Places(args_).there[uint64_t{rank} * args_.max_tokens + token_] = targets_.has(rank) ? place : kNone;
    }
  }

 private:
  /// Whether the token takes part, as read by this thread.
  SYMMETRA_DEVICE bool sends() const { return token_ < asked_.tokens() && call_.poisoned == 0; }
  SYMMETRA_DEVICE bool sends_pairs() const { return args_.layout == kRowsBySource; }
  SYMMETRA_DEVICE static uint32_t from_end() { return platform::threads() - 1 - platform::thread(); }
  /// Sends a pair, and stores what combines need of it.
  SYMMETRA_DEVICE void send_pair(const ExpertPackets& packets, uint32_t k) const {
    const uint32_t pair = token_ * args_.top_k + k;
    send_control(args_, packets, packets.pair_at(pair), {{replicas_[k], weights_[k]}});
    const Headers headers(args_);
    headers.replicas(args_.rank)[pair] = static_cast<uint16_t>(replicas_[k]);
    headers.weights(args_.rank)[pair] = platform::f32_of(weights_[k]);
  }

  const SendArgs& args_;
  const Asked& asked_;
  const Call& call_;
  uint32_t token_;
  TokenRanks targets_;
  uint32_t* replicas_;  ///< of the token's pairs
  uint32_t* weights_;   ///< as bits
};

/// The largest number of tokens of a rank for which pairs are sent after the sync.
constexpr uint32_t kFewTokens = 8;

/// Sends a row in its wire format. Loads precede the sync after which the block knows the targets, and everything that
/// depends on the state. `words`: in block-shared memory, those of the sender, followed by capacity for the scales of a
/// row.
template <class Element, class Protocol>
SYMMETRA_DEVICE void send_packets(const SendArgs& args, const Asked& asked, const Call& call, uint32_t token, uint32_t* words) {
  RowSender<Protocol> sender(args, asked, call, token, words);
  const uint32_t codes_quiet = F8E4M3::kQuietNan, scales_at = static_cast<uint32_t>(args.scales_offset / 16);
  if constexpr (Element::kFloating) {
    using Codes = RowCodes<Element>;
    const Codes row(args, args.rows, token);
    uint32_t* const scales = words + RowSender<Protocol>::kWords;
    const bool bytes = args.scales == kCodeScalesE8M0;
    const ExpertPackets packets(args, args.packets, call.epoch);
    const auto first = row.load(0);
    if (!sender.meet()) return;
    sender.send_pairs(packets);
    for (uint32_t round = 0; round < row.rounds(); ++round) {
      Words<4> codes[Codes::kPackets];
      row.encode(round, round == 0 ? first : row.load(round), codes, [&](uint32_t group, const CodeScale& scale) {
        if (bytes) {
          reinterpret_cast<uint8_t*>(scales)[group] = static_cast<uint8_t>(scale.byte);
        } else {
          scales[group] = platform::bits_of(scale.scale);
        }
      });
      row.each(round, codes, [&](uint32_t packet, const Words<4>& data) { sender.send(packets, packet, data, codes_quiet); });
    }
    sender.keep();
    platform::sync_block();  // all scales are there
    // Bytes after the last scale may have any value: they are not read. A word of four NaN scales equals the "not
    // arrived" pattern, so its last scale is replaced with 2^127, the largest finite scale.
    constexpr uint32_t scales_quiet = 0xFEFFFFFF;
    const uint32_t count = bytes ? (code_groups(args) + 3) / 4 : code_groups(args);
    for (uint32_t i = platform::threads() - 1 - platform::thread(); i * 4 < count; i += platform::threads()) {
      Words<4> data{};
      SYMMETRA_UNROLL
      for (uint32_t word = 0; word < 4; ++word) {
        if (i * 4 + word < count) data.word[word] = scales[i * 4 + word];
      }
      sender.send(packets, scales_at + i, data, bytes ? scales_quiet : F32::kQuietNan);
    }
  } else {
    const bool codes = args.wire == kWireGivenF8;
    const Bytes row(args.rows.values, uint64_t{token} * args.payload_bytes, args.payload_bytes);
    const uint32_t quiet = codes ? codes_quiet : args.dtype == kF32 ? F32::kQuietNan : BF16::kQuietNan;
    const uint32_t bytes = code_groups(args) * 4, scale_packets = codes ? byte_packets(bytes) : 0;
    const Bytes scales(args.rows.scales, uint64_t{token} * bytes, bytes);
    const uint32_t threads = platform::threads(), first = platform::thread(), from_end = threads - 1 - first;
    const Words<4> data = first < row.packets() ? row.load(first) : Words<4>{};
    const Words<4> scale = from_end < scale_packets ? scales.load(from_end) : Words<4>{};
    const ExpertPackets packets(args, args.packets, call.epoch);
    // The receiver needs the pairs first. With few tokens the pairs would not wait for rows, and sending them early
    // would delay the sync.
    const bool early = args.tokens > kFewTokens;
    if (early) sender.send_pairs(packets);
    if (!sender.meet()) return;
    if (!early) sender.send_pairs(packets);
    if (first < row.packets()) sender.send(packets, first, data, quiet);
    if (from_end < scale_packets) sender.send(packets, scales_at + from_end, scale, F32::kQuietNan);
    for (uint32_t i = first + threads; i < row.packets(); i += threads) sender.send(packets, i, row.load(i), quiet);
    for (uint32_t i = from_end + threads; i < scale_packets; i += threads) {
      sender.send(packets, scales_at + i, scales.load(i), F32::kQuietNan);
    }
    sender.keep();
  }
}

/// Sends the routing header to all ranks, and each row to the ranks of its token's experts. A block takes a run of the
/// header, or by source the fixed part of the header, or a token.
template <class Element, class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_send(SYMMETRA_ARGS(SendArgs) args) {
  auto* words = platform::kept_shared<uint32_t>();
  // No kernel writes the table; only a placement does, while no call is in flight. So these loads need not wait for
  // earlier kernels.
  const uint32_t* experts = args.table + args.world + 1;
  if (args.experts <= kMostStagedExperts) {
    for (uint32_t i = platform::thread(); i < args.experts; i += platform::threads()) words[i] = experts[i];
    experts = words;
    words += kMostStagedExperts;
    platform::sync_block();
  }
  platform::wait_prior();
  platform::release_next();  // the receiving kernel needs only packets of this kernel
  const Call call = begin_call(args.calls, args.wait);
  const Asked asked(args, args.routing, ExpertTable(args, experts));
  const bool by_source = args.layout == kRowsBySource;
  const uint32_t runs = by_source ? 1 : header_runs(args);
  for (uint32_t unit = platform::block(); unit < runs + args.tokens; unit += platform::blocks()) {
    if (unit < runs && by_source) {
      send_counts(args, asked, call, words);
    } else if (unit < runs) {
      send_header(args, asked, call, unit, words);
    } else {
      send_packets<Element, Protocol>(args, asked, call, unit - runs, words);
    }
    platform::sync_block();  // the words are free again
  }
  platform::sync_block();  // all threads have read the state
  advance_state(args.calls, call.epoch, 0);
}

}  // namespace symmetra::kernels
