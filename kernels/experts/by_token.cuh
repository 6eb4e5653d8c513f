// A combine in packets, for layouts where a token has one row on a rank: a part is the caller's row, unchanged. A rank
// sends no results to itself if the sums can read them in place.
#pragma once
#include "kernels/experts/combine.cuh"

namespace symmetra::kernels {

/// Sends this rank's results to the ranks of their tokens, in packets, and a start flag to every rank. A block takes a
/// token of a rank; the tokens of all ranks are interleaved. `kAhead`: packets of a row that a thread loads at once.
template <class Element, uint32_t kAhead>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_return_rows(SYMMETRA_ARGS(CombinePacketArgs) args) {
  platform::wait_prior();
  platform::release_next();  // the summing kernel needs only packets of this kernel
  const Call call = begin_call(args.calls, args.wait);
  const Headers headers(args);
  const Places places(args);
  const uint32_t own_stays = args.own_stays != 0, ranks = args.world - own_stays, row = row_packets<RowProtocol>(args.part_bytes);
  const bool may_send = ExpertState(args).failed() == 0;
  // A load that the block's first token does not need.
  const auto most = [&] {
    uint32_t most = 0;
    SYMMETRA_ROLLED
    for (uint32_t rank = platform::thread() % platform::kTeam; rank < args.world; rank += platform::kTeam) {
      const uint32_t tokens = headers.tokens(rank);
      most = tokens > most ? tokens : most;
    }
    return platform::team_max(platform::kTeam, most);
  };
  uint32_t end = args.max_tokens;
  SYMMETRA_ROLLED
  for (uint32_t item = platform::block(); ranks != 0; item += platform::blocks()) {
    const TokenPart part(args, item);
    const uint32_t token = part.unit / ranks, next = args.rank + 1 + part.unit - token * ranks;
    const uint32_t rank = next < args.world ? next : next - args.world;
    if (token >= end) break;
    if (item == platform::block() + platform::blocks()) {
      end = most();
      if (token >= end) break;
    }
    const uint64_t unit = uint64_t{rank} * args.max_tokens + token;
    const uint32_t tokens = headers.tokens(rank), found = places.tokens[unit];
    // By source the place of a row is known, so the row is loaded concurrently with the words that decide whether it is
    // sent.
    const uint64_t place = args.layout == kRowsBySource ? unit : found;
    const bool reads = args.layout == kRowsBySource || (token < tokens && found != kNone);
    const Row<Element> from(args.results, reads ? place * args.hidden : 0, args.hidden);
    SYMMETRA_ROLLED
    for (uint32_t first = part.first; first < from.packets(); first += kAhead * part.step) {
      Words<4> data[kAhead];
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        if (reads && first + j * part.step < from.packets()) data[j] = from.load(first + j * part.step);
      }
      if (!may_send || call.poisoned != 0 || token >= tokens || found == kNone) break;
      Packet* const into = ExpertPackets(args, args.packets, call.epoch).row(rank, uint64_t{args.rank} * args.max_tokens + token, row);
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        const uint32_t packet = first + j * part.step;
        if (packet < from.packets()) send_bytes<RowProtocol>(into, packet, data[j], Element::kQuietNan, call.epoch);
      }
    }
  }
  send_start_flags(args, call);
  platform::sync_block();  // all threads have read the state
  advance_state(args.calls, call.epoch, 0);
}

/// The sums of own tokens, from the view of a block. `kAhead`: packets of a row that a thread loads at once, each from
/// `kRanks` ranks. A kernel with smaller values has fewer instructions, and those take most of the time when there are
/// few tokens.
template <class Element, uint32_t kRanks, uint32_t kAhead>
class RowSums {
 public:
  SYMMETRA_DEVICE RowSums(const CombinePacketArgs& args, const ExpertPackets& packets, device::Waiter& waiter)
      : args_(args),
        packets_(packets),
        waiter_(waiter),
        row_(row_packets<RowProtocol>(args.part_bytes)),
        own_(args.own_stays != 0 ? args.rank : kNone) {}

  /// Sums a part of a token: the parts of all ranks in rank order. `tokens`: the number of own tokens.
  SYMMETRA_DEVICE void sum(const TokenPart& part, uint32_t tokens) {
    const uint32_t token = part.unit;
    const Row<Element> output(args_.output, uint64_t{token} * args_.hidden, args_.hidden);
    SYMMETRA_ROLLED
    for (uint32_t first = part.first; first < output.packets(); first += kAhead * part.step) {
      float sums[kAhead][kCount] = {};
      bool whole = token < tokens;
      SYMMETRA_ROLLED
      for (uint32_t begin = 0; begin < args_.world; begin += kRanks) whole &= add(part, first, output.packets(), begin, whole, sums);
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        const uint32_t packet = first + j * part.step;
        if (!whole || packet >= output.packets()) continue;
        if (args_.add != nullptr) {
          const Row<Element> more(args_.add, uint64_t{token} * args_.hidden, args_.hidden);
          add_packet<Element>(sums[j], more.load(packet), false, 1.0f);
        }
        output.store(packet, Element::template pack<4>(sums[j]));
      }
    }
  }

 private:
  /// Values of a packet.
  static constexpr uint32_t kCount = kValues<Element, 4>;

  /// Adds packets of the ranks from `begin` on. All packets are loaded before any is waited for, even before it is
  /// known which ranks have an expert of the token. `there`: whether the token exists. Returns false when a wait gave
  /// up.
  SYMMETRA_DEVICE bool add(const TokenPart& part, uint32_t first, uint32_t count, uint32_t begin, bool there,
                           float (&sums)[kAhead][kCount]) {
    const uint32_t token = part.unit;
    Incoming<RowProtocol, kRanks> coming[kAhead];
    Words<4> own[kAhead];
    uint32_t places[kRanks];
    const uint32_t own_place = own_ != kNone && args_.layout == kRowsByRank ? Places(args_).tokens[own_unit(token)] : own_unit(token);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kRanks; ++i) {
      const uint32_t rank = begin + i;
      places[i] = rank < args_.world ? Places(args_).there[uint64_t{rank} * args_.max_tokens + token] : kNone;
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        const uint32_t packet = first + j * part.step;
        if (rank >= args_.world || packet >= count || stays(rank)) {
          coming[j].none(i);
        } else {
          coming[j].look(i, packets_.row(args_.rank, uint64_t{rank} * args_.max_tokens + token, row_), packet, rank);
        }
      }
    }
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kRanks; ++i) {
      if (!there || places[i] == kNone || !stays(begin + i)) continue;  // nothing is known of a padding token
      const Row<Element> from(args_.results, uint64_t{own_place} * args_.hidden, args_.hidden);
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        if (first + j * part.step < count) own[j] = from.load(first + j * part.step);
      }
    }
    if (!there) return true;
    SYMMETRA_UNROLL
    for (uint32_t j = 0; j < kAhead; ++j) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kRanks; ++i) {
        if (places[i] == kNone) coming[j].none(i);
      }
      if (!coming[j].await(waiter_, packets_.epoch())) return false;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kRanks; ++i) {
        if (coming[j].has(i)) {
          add_packet<Element>(sums[j], coming[j].data(i), false, 1.0f);
        } else if (places[i] != kNone && stays(begin + i) && first + j * part.step < count) {
          add_packet<Element>(sums[j], own[j], false, 1.0f);
        }
      }
    }
    return true;
  }

  SYMMETRA_DEVICE uint32_t own_unit(uint32_t token) const { return args_.rank * args_.max_tokens + token; }
  /// Whether the part of a rank is read from the own results.
  SYMMETRA_DEVICE bool stays(uint32_t rank) const { return rank == own_; }

  const CombinePacketArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  uint32_t row_;  ///< packets of a part
  uint32_t own_;  ///< the rank whose parts are read from the own results; kNone: no rank
};

/// Waits for the parts of each token of this rank, and sums them. The first block waits for the start flags of all
/// ranks. A block takes a token. After its sending kernel, this kernel starts immediately: its inputs arrive in packets
/// or precede the sending kernel.
template <class Element, uint32_t kRanks, uint32_t kAhead>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_sum_rows(SYMMETRA_ARGS(CombinePacketArgs) args) {
  receive_call(args, kOpCombine, [&](const ExpertPackets& packets, device::Waiter& waiter) {
    RowSums<Element, kRanks, kAhead> sums(args, packets, waiter);
    const uint32_t tokens = summed_tokens(args);
    for (uint32_t item = platform::block(); item < args.tokens * args.sharers; item += platform::blocks()) {
      sums.sum(TokenPart(args, item), tokens);
    }
    await_start_flags(args, packets, waiter);
  });
}

}  // namespace symmetra::kernels
