// Results on their way back: the part of each token that this rank sends, and the sum of the parts from all ranks.
// Products are rounded before they are added, in f32, in an order that depends on the expert ids only.
#pragma once
#include "kernels/experts/barrier.cuh"
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// Adds a packet of values, optionally multiplied by a weight.
template <class Element, uint32_t kCount>
SYMMETRA_DEVICE void add_packet(float (&sums)[kCount], const Words<4>& packet, bool weighs, float weight) {
  float values[kCount];
  Element::unpack(packet, values);
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) sums[i] = platform::add(sums[i], weighs ? platform::multiply(values[i], weight) : values[i]);
}

/// The part of a token that this rank sends: the weighted sum of its results, in the order of the token's experts; by
/// rank and by source the caller's row; with `exact` each result separately, one in each step.
template <class Element>
class OwnParts {
 public:
  /// `words`: in block-shared memory, two for each expert of a token.
  SYMMETRA_DEVICE OwnParts(const PartArgs& args, uint32_t* words)
      : args_(args),
        alone_(is_by_token(args) || args.exact != 0),
        whole_((reinterpret_cast<uintptr_t>(args.results) | uint64_t{args.hidden} * Element::kBytes) % sizeof(Words<4>) == 0),
        places_(words),
        weights_(words + kMostTopK) {}

  /// Finds the token's results; undefined if the rank has no such token. All threads of the block call it. All loads
  /// are issued at once.
  SYMMETRA_DEVICE void find(uint32_t rank, uint32_t token) {
    const Headers headers(args_);
    const Places places(args_);
    const uint64_t unit = uint64_t{rank} * args_.max_tokens + token;
    platform::sync_block();  // all threads have read the places of the previous token
    for (uint32_t k = platform::thread(); k < kept(); k += platform::threads()) {
      const uint32_t own = place_of(args_, headers, rank, token);
      if (is_by_token(args_) || k >= args_.top_k) {
        places_[k] = is_by_token(args_) && k == 0 ? own : kNone;
        continue;
      }
      // The other places are undefined if the token has no expert here.
      const uint32_t pair = token * args_.top_k + k, place = places.pairs[unit * args_.top_k + k];
      uint32_t replica = headers.replicas(rank)[pair];
      const float weight = args_.weighs != 0 ? headers.weights(rank)[pair] : 1.0f;
      places_[k] = headers.is_here(replica) && own != kNone ? place : kNone;
      weights_[k] = platform::bits_of(weight);
    }
    platform::sync_block();
  }

  /// Steps of a token whose results are sent in one call.
  SYMMETRA_DEVICE uint32_t steps() const { return args_.exact != 0 ? args_.top_k : 1; }

  /// Whether a step has something to send.
  SYMMETRA_DEVICE bool has(uint32_t step) const {
    if (alone_) return places_[step] != kNone;
    uint32_t none = kNone;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < kept(); k += 4) {
      const auto places = platform::load_shared<Words<4>>(places_ + k);
      none &= places.word[0] & places.word[1] & places.word[2] & places.word[3];
    }
    return none != kNone;
  }

  /// A packet of the part of a step. The step must have something to send.
  SYMMETRA_DEVICE Words<4> load(uint32_t step, uint32_t packet) const {
    if (alone_) return result<false>(places_[step]).load(packet);
    return whole_ ? sum<true>(packet) : sum<false>(packet);
  }

 private:
  /// Results that are loaded before the first result is added.
  static constexpr uint32_t kAhead = platform::kTeam == 1 ? 4 : 8;

  /// Sums a packet of all results. `kWhole`: rows are whole packets.
  template <bool kWhole>
  SYMMETRA_DEVICE Words<4> sum(uint32_t packet) const {
    float sums[kValues<Element, 4>] = {};
    SYMMETRA_ROLLED
    for (uint32_t first = 0; first < args_.top_k; first += kAhead) {
      Words<4> results[kAhead], places[kAhead / 4];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (i % 4 == 0) places[i / 4] = platform::load_shared<Words<4>>(places_ + first + i);
        const uint32_t place = places[i / 4].word[i % 4];
        if (place != kNone) results[i] = result<kWhole>(place).load(packet);
      }
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (places[i / 4].word[i % 4] == kNone) continue;
        add_packet<Element>(sums, results[i], args_.weighs != 0, platform::f32_of(weights_[first + i]));
      }
    }
    return Element::template pack<4>(sums);
  }

  /// Words of the list of places: a multiple of the number that is read at once.
  SYMMETRA_DEVICE uint32_t kept() const { return (args_.top_k + kAhead - 1) / kAhead * kAhead; }
  template <bool kWhole>
  SYMMETRA_DEVICE Row<Element, kWhole> result(uint32_t place) const {
    return Row<Element, kWhole>(args_.results, uint64_t{place} * args_.hidden, args_.hidden);
  }

  const PartArgs& args_;
  bool alone_;         ///< each step sends one result
  bool whole_;         ///< rows are whole packets, at multiples of the packet size
  uint32_t* places_;   ///< of the results of the token's experts; kNone: on another rank
  uint32_t* weights_;  ///< as bits
};

/// A work item of a block: a token's number among the interleaved tokens of `world` ranks, and a subset of its packets.
struct TokenPart {
  uint32_t unit;
  uint32_t first;  ///< first packet of this thread
  uint32_t step;   ///< from a packet of this thread to the next

  SYMMETRA_DEVICE TokenPart(const PartArgs& args, uint32_t item)
      : unit(args.sharers == 1 ? item : item / args.sharers),
        first((item - unit * args.sharers) * platform::threads() + platform::thread()),
        step(args.sharers * platform::threads()) {}
};

/// Calls `body(rank, token, part)` for this block's share of the tokens of all ranks that may have results here: none
/// after a failed dispatch. `own_parts` has found the token's results. The tokens of all ranks are interleaved, so a block
/// knows its first token before it knows the token counts. `words`: in block-shared memory, one for each rank.
template <class Element, class Body>
SYMMETRA_DEVICE void each_own_part(const PartArgs& args, uint32_t* words, OwnParts<Element>& own_parts, Body body) {
  for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
    const uint32_t failed = ExpertState(args).failed(), tokens = Headers(args).tokens(rank);
    words[rank] = failed != 0 ? 0 : tokens;
  }
  SYMMETRA_ROLLED
  for (uint32_t item = platform::block();; item += platform::blocks()) {
    const TokenPart part(args, item);
    const uint32_t token = part.unit / args.world, rank = part.unit - token * args.world;
    if (token >= args.max_tokens) return;
    own_parts.find(rank, token);
    uint32_t most = 0;
    SYMMETRA_ROLLED
    for (uint32_t other = 0; other < args.world; ++other) most = words[other] > most ? words[other] : most;
    if (token >= most) return;
    if (token < words[rank]) body(rank, token, part);
  }
}

/// Writes the part of each token to `place(rank, token)`. `words`: in block-shared memory.
template <class Element, class Place>
SYMMETRA_DEVICE void write_own_parts(const PartArgs& args, uint32_t* words, Place place) {
  OwnParts<Element> own_parts(args, words + kMaxWorld);
  each_own_part(args, words, own_parts, [&](uint32_t rank, uint32_t token, const TokenPart& part) {
    if (!own_parts.has(args.step)) return;
    const Row<Element> into(place(rank, token), 0, args.hidden);
    for (uint32_t packet = part.first; packet < into.packets(); packet += part.step) {
      into.store(packet, own_parts.load(args.step, packet));
    }
  });
}

/// Writes the part of each token into the own region. A block takes a token of a rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_combine_send(SYMMETRA_ARGS(CombineArgs) args) {
  platform::wait_prior();
  const auto place = [&](uint32_t rank, uint32_t token) { return of_token(args, args.sent, args.part_bytes, rank, token); };
  write_own_parts<Element>(args, platform::shared<uint32_t>(), place);
  platform::release_next();
}

/// Writes the part of each token, between two barriers, into the region of the token's rank. A block takes a token of a
/// rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_deliver(SYMMETRA_ARGS(CombineDirectArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  auto* const words = platform::shared<uint32_t>();
  GridBarrier barrier(args, args.peers, kOpCombine, call, words);
  barrier.begin();
  const auto place = [&](uint32_t rank, uint32_t token) {
    return of_token(args, args.peers.regions[rank] + args.parts_offset, args.part_bytes, args.rank, token);
  };
  if (barrier.enter()) write_own_parts<Element>(args, words + kMaxWorld, place);
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

/// The first block notifies every rank that this rank has begun to send.
SYMMETRA_DEVICE void send_start_flags(const CombinePacketArgs& args, const Call& call) {
  if (platform::block() != 0 || call.poisoned != 0) return;
  const ExpertPackets packets(args, args.packets, call.epoch);
  for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
    platform::store_packet(packets.control(rank, args.rank, 0), ByteProtocol::encode({{0, 0}}, call.epoch));
  }
}

/// The first block waits until every rank has begun to send.
SYMMETRA_DEVICE void await_start_flags(const ExpertArgs& args, const ExpertPackets& packets, device::Waiter& waiter) {
  if (platform::block() != 0) return;
  for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
    const Packet* const flag = packets.control(args.rank, rank, 0);
    waiter.until(rank, [&] { return ByteProtocol::arrived(platform::load_packet(flag), packets.epoch()); });
  }
}

/// Sends the part of each token to the token's rank, in packets, and a start flag to every rank. A block takes a token
/// of a rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_return(SYMMETRA_ARGS(CombinePacketArgs) args) {
  auto* const words = platform::kept_shared<uint32_t>();
  platform::wait_prior();
  platform::release_next();  // the summing kernel needs only packets of this kernel
  const Call call = begin_call(args.calls, args.wait);
  const uint32_t row = row_packets<RowProtocol>(args.part_bytes);
  OwnParts<Element> own_parts(args, words + kMaxWorld);
  each_own_part(args, words, own_parts, [&](uint32_t rank, uint32_t token, const TokenPart& part) {
    for (uint32_t step = 0; step < own_parts.steps() && call.poisoned == 0; ++step) {
      if (!own_parts.has(step)) continue;
      const uint64_t number = args.exact != 0 ? uint64_t{token} * args.top_k + step : uint64_t{args.rank} * args.max_tokens + token;
      Packet* const into = ExpertPackets(args, args.packets, call.epoch).row(rank, number, row);
      for (uint32_t packet = part.first; packet < packets_of<Element>(args.hidden); packet += part.step) {
        send_bytes<RowProtocol>(into, packet, own_parts.load(step, packet), Element::kQuietNan, call.epoch);
      }
    }
  });
  send_start_flags(args, call);
  platform::sync_block();  // all threads have read the state
  advance_state(args.calls, call.epoch, 0);
}

/// Packets of parts of a token of this rank, loaded from the own region. Bytes after the end of a part are undefined.
template <class Element>
class LoadedParts {
 public:
  static constexpr bool kAllSteps = false;
  static constexpr uint32_t kCount = platform::kTeam == 1 ? 1 : 4;
  SYMMETRA_DEVICE explicit LoadedParts(const CombineArgs& args) : args_(args) {}

  SYMMETRA_DEVICE void look(uint32_t number, uint32_t token, uint32_t rank, uint32_t, uint32_t packet) {
    has_[number] = true;
    parts_[number] = Row<Element, true>(of_token(args_, args_.received, args_.part_bytes, rank, token), 0, args_.hidden).load(packet);
  }
  SYMMETRA_DEVICE void none(uint32_t number) { has_[number] = false; }
  SYMMETRA_DEVICE bool has(uint32_t number) const { return has_[number]; }
  SYMMETRA_DEVICE bool await() const { return true; }
  SYMMETRA_DEVICE Words<4> data(uint32_t number) const { return parts_[number]; }

 private:
  const CombineArgs& args_;
  Words<4> parts_[kCount];
  bool has_[kCount];
};

/// Packets of parts of a token of this rank that arrive one by one.
class ArrivingParts {
 public:
  static constexpr bool kAllSteps = true;
  static constexpr uint32_t kCount = platform::kTeam == 1 ? 1 : 4;
  SYMMETRA_DEVICE ArrivingParts(const CombinePacketArgs& args, const ExpertPackets& packets, device::Waiter& waiter)
      : args_(args), packets_(packets), waiter_(waiter) {}

  SYMMETRA_DEVICE void look(uint32_t number, uint32_t token, uint32_t rank, uint32_t step, uint32_t packet) {
    const uint64_t row = args_.exact != 0 ? uint64_t{token} * args_.top_k + step : uint64_t{rank} * args_.max_tokens + token;
    incoming_.look(number, packets_.row(args_.rank, row, row_packets<RowProtocol>(args_.part_bytes)), packet, rank);
  }
  SYMMETRA_DEVICE void none(uint32_t number) { incoming_.none(number); }
  SYMMETRA_DEVICE bool has(uint32_t number) const { return incoming_.has(number); }
  SYMMETRA_DEVICE bool await() { return incoming_.await(waiter_, packets_.epoch()); }
  SYMMETRA_DEVICE Words<4> data(uint32_t number) const { return incoming_.data(number); }

 private:
  const CombinePacketArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  Incoming<RowProtocol, kCount> incoming_;
};

/// The ranks and the weights of a token's experts, in block-shared memory.
class PartRanks {
 public:
  /// `words`: in block-shared memory, two for each expert of a token.
  SYMMETRA_DEVICE PartRanks(const ExpertArgs& args, uint32_t* words) : args_(args), ranks_(words), weights_(words + kMostTopK) {}

  /// Finds the ranks and weights of a token of this rank. All threads of the block call it.
  SYMMETRA_DEVICE void find(uint32_t token) {
    const Headers headers(args_);
    const ExpertTable table(args_);
    platform::sync_block();  // all threads have read those of the previous token
    for (uint32_t k = platform::thread(); k < args_.top_k; k += platform::threads()) {
      const uint32_t pair = token * args_.top_k + k;
      const uint16_t replica = headers.replicas(args_.rank)[pair];
      ranks_[k] = replica == kNoReplica ? kNone : table.rank_of(replica);
      weights_[k] = platform::bits_of(headers.weights(args_.rank)[pair]);
    }
    platform::sync_block();
    all_ = 0;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < args_.top_k; ++k) all_ |= ranks_[k] != kNone ? 1u << ranks_[k] : 0;
  }

  /// Whether a rank sends a part of the token.
  SYMMETRA_DEVICE bool has_part(uint32_t rank) const { return (all_ >> rank & 1) != 0; }
  /// The rank of one of the token's experts; kNone: the token has no such expert.
  SYMMETRA_DEVICE uint32_t rank(uint32_t k) const { return ranks_[k]; }
  SYMMETRA_DEVICE float weight(uint32_t k) const { return platform::f32_of(weights_[k]); }

 private:
  const ExpertArgs& args_;
  uint32_t* ranks_;
  uint32_t* weights_;
  uint32_t all_ = 0;  ///< one bit for each rank
};

/// Sums the parts of a token of this rank, in rank order; with `exact`, the token's results in the order of its
/// experts, all at once or one in each step. All threads of the block call it.
template <class Element, class Parts>
SYMMETRA_DEVICE void sum_token(const PartArgs& args, const TokenPart& part, Parts& parts, PartRanks& part_ranks) {
  const uint32_t token = part.unit;
  constexpr uint32_t kCount = kValues<Element, 4>;
  const bool exact = args.exact != 0, one = exact && !Parts::kAllSteps, weighs = exact && args.weighs != 0;
  const bool last = !one || args.step + 1 == args.top_k;
  const uint32_t begin = one ? args.step : 0, end = one ? args.step + 1 : exact ? args.top_k : args.world;
  part_ranks.find(token);
  const Row<Element> output(args.output, uint64_t{token} * args.hidden, args.hidden);
  float* const kept = args.sums + uint64_t{token} * output.packets() * kCount;
  // The rank of a part; kNone: there is no part.
  const auto rank_of = [&](uint32_t i) { return i >= end ? kNone : exact ? part_ranks.rank(i) : part_ranks.has_part(i) ? i : kNone; };
  SYMMETRA_ROLLED
  for (uint32_t packet = part.first; packet < output.packets(); packet += part.step) {
    float sums[kCount] = {};
    bool whole = true;
    for (uint32_t i = 0; i < kCount && begin > 0; ++i) sums[i] = kept[packet * kCount + i];
    SYMMETRA_ROLLED
    for (uint32_t first = begin; first < end; first += Parts::kCount) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < Parts::kCount; ++i) {
        const uint32_t rank = rank_of(first + i);
        if (rank != kNone) {
          parts.look(i, token, rank, first + i, packet);
        } else {
          parts.none(i);
        }
      }
      whole &= parts.await();
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < Parts::kCount; ++i) {
        if (parts.has(i)) add_packet<Element>(sums, parts.data(i), weighs, weighs ? part_ranks.weight(first + i) : 1.0f);
      }
    }
    if (!last) {
      for (uint32_t i = 0; i < kCount; ++i) kept[packet * kCount + i] = sums[i];
    } else if (whole) {
      if (args.add != nullptr) {
        const Row<Element> more(args.add, uint64_t{token} * args.hidden, args.hidden);
        add_packet<Element>(sums, more.load(packet), false, 1.0f);
      }
      output.store(packet, Element::template pack<4>(sums));
    }
  }
}

/// The own tokens that a combine sums: none after a failed dispatch.
SYMMETRA_DEVICE uint32_t summed_tokens(const ExpertArgs& args) {
  return ExpertState(args).failed() != 0 ? 0 : Headers(args).tokens(args.rank);
}

/// Sums the parts of each token of this rank. A block takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_combine_receive(SYMMETRA_ARGS(CombineArgs) args) {
  platform::wait_prior();
  PartRanks part_ranks(args, platform::shared<uint32_t>());
  LoadedParts<Element> parts(args);
  const uint32_t tokens = summed_tokens(args);
  for (uint32_t item = platform::block(); item < tokens * args.sharers; item += platform::blocks()) {
    sum_token<Element>(args, TokenPart(args, item), parts, part_ranks);
  }
  platform::release_next();
}

/// Waits for the parts of each token of this rank, and sums them. The first block waits for the start flags of all
/// ranks. A block takes a token. After its sending kernel, this kernel starts immediately: its inputs arrive in packets
/// or precede the sending kernel.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_sum(SYMMETRA_ARGS(CombinePacketArgs) args) {
  receive_call(args, kOpCombine, [&](const ExpertPackets& packets, device::Waiter& waiter) {
    PartRanks part_ranks(args, platform::kept_shared<uint32_t>());
    ArrivingParts parts(args, packets, waiter);
    const uint32_t tokens = summed_tokens(args);
    for (uint32_t item = platform::block(); item < tokens * args.sharers; item += platform::blocks()) {
      sum_token<Element>(args, TokenPart(args, item), parts, part_ranks);
    }
    await_start_flags(args, packets, waiter);
  });
}

}  // namespace symmetra::kernels
