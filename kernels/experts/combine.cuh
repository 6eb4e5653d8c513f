// Results on their way back: what this rank gives each token, and what a token takes from all ranks. Products are rounded
// before they are added, in f32, in an order that the ids alone decide.
#pragma once
#include "kernels/experts/packets.cuh"

namespace symmetra::kernels {

/// Adds a packet of values, each times a weight, or as they are.
template <class Element, uint32_t kCount>
SYMMETRA_DEVICE void add_packet(float (&sums)[kCount], const Words<4>& packet, bool weighs, float weight) {
  float values[kCount];
  Element::unpack(packet, values);
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) sums[i] = platform::add(sums[i], weighs ? platform::multiply(values[i], weight) : values[i]);
}

/// What this rank gives a token of a rank: the sum of its results by their weights, in the order of the token's experts; by
/// rank the caller's row; exact, each result by itself, one a step.
template <class Element>
class Given {
 public:
  SYMMETRA_DEVICE Given(const ExpertArgs& args, uint32_t unit)
      : args_(args), heads_(args), places_(args), unit_(unit), rank_(unit / args.max_tokens), token_(unit % args.max_tokens) {}

  /// Whether the token takes part.
  SYMMETRA_DEVICE bool is_live() const { return token_ < heads_.tokens(rank_); }
  SYMMETRA_DEVICE uint32_t rank() const { return rank_; }
  SYMMETRA_DEVICE uint32_t token() const { return token_; }
  /// Steps of a token whose results travel at once.
  SYMMETRA_DEVICE uint32_t steps() const { return args_.exact != 0 ? args_.top_k : 1; }

  /// Whether there is something to give in a step.
  SYMMETRA_DEVICE bool has(uint32_t step) const {
    if (args_.layout == kRowsByRank) return places_.tokens[unit_] != kNone;
    if (args_.exact != 0) return place_of(step) != kNone;
    for (uint32_t k = 0; k < args_.top_k; ++k) {
      if (place_of(k) != kNone) return true;
    }
    return false;
  }

  /// A packet of what is given in a step that has something.
  SYMMETRA_DEVICE Words<4> load(uint32_t step, uint32_t packet) const {
    if (args_.layout == kRowsByRank) return result(places_.tokens[unit_]).load(packet);
    if (args_.exact != 0) return result(place_of(step)).load(packet);
    float sums[kCount] = {};
    for (uint32_t k = 0; k < args_.top_k; ++k) {
      const uint32_t place = place_of(k);
      if (place == kNone) continue;
      const float weight = args_.weighs != 0 ? heads_.weights(rank_)[token_ * args_.top_k + k] : 1.0f;
      add_packet<Element>(sums, result(place).load(packet), args_.weighs != 0, weight);
    }
    return Element::template pack<4>(sums);
  }

 private:
  static constexpr uint32_t kCount = kValues<Element, 4>;

  SYMMETRA_DEVICE Row<Element> result(uint32_t place) const {
    return Row<Element>(args_.rows, uint64_t{place} * args_.hidden, args_.hidden);
  }
  /// The place of the result of one of the token's experts; kNone: it is on another rank.
  SYMMETRA_DEVICE uint32_t place_of(uint32_t k) const {
    uint32_t copy = heads_.copies(rank_)[token_ * args_.top_k + k];
    return heads_.is_here(copy) ? places_.pairs[uint64_t{unit_} * args_.top_k + k] : kNone;
  }

  const ExpertArgs& args_;
  Heads heads_;
  Places places_;
  uint32_t unit_;
  uint32_t rank_;
  uint32_t token_;
};

/// Tokens of all ranks to which something may be given: none after a dispatch that failed.
SYMMETRA_DEVICE uint32_t given_units(const ExpertArgs& args) { return ExpertState(args).failed() != 0 ? 0 : args.world * args.max_tokens; }

/// Puts what this rank gives each token into the own region. A block takes a token of a rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_give(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const uint32_t units = given_units(args);
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    const Given<Element> given(args, unit);
    if (!given.is_live() || !given.has(args.step)) continue;
    const Row<Element> part(travelling(args, given.rank(), given.token()), 0, args.hidden);
    for (uint32_t packet = platform::thread(); packet < part.packets(); packet += platform::threads()) {
      part.store(packet, given.load(args.step, packet));
    }
  }
  platform::release_next();
}

/// Sends what this rank gives each token to the token's rank, in packets, and a greeting to every rank. A block takes a token
/// of a rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_return(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  const bool sends = call.poisoned == 0;
  if (sends && platform::block() == 0) {
    for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
      platform::store_packet(packets.telling(rank, args.rank, 0), ByteProtocol::encode({{0, 0}}, call.epoch));
    }
  }
  const uint32_t units = sends ? given_units(args) : 0, row = row_packets<RowProtocol>(args.row_bytes);
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    const Given<Element> given(args, unit);
    if (!given.is_live()) continue;
    for (uint32_t step = 0; step < given.steps(); ++step) {
      if (!given.has(step)) continue;
      const uint64_t number =
          args.exact != 0 ? uint64_t{given.token()} * args.top_k + step : uint64_t{args.rank} * args.max_tokens + given.token();
      Packet* const into = packets.row(given.rank(), number, row);
      for (uint32_t packet = platform::thread(); packet < packets_of<Element>(args.hidden); packet += platform::threads()) {
        send_bytes<RowProtocol>(into, packet, given.load(step, packet), Element::kQuietNan, call.epoch);
      }
    }
  }
  platform::release_next();
  platform::sync_block();  // all have read the state
  end_telling(args.calls, call.epoch, 0);
}

/// Parts of a token of this rank among those that came here.
class PartsHere {
 public:
  static constexpr bool kAllSteps = false;
  SYMMETRA_DEVICE PartsHere(const ExpertArgs& args, uint32_t token) : args_(args), token_(token) {}
  SYMMETRA_DEVICE bool gave_up() const { return false; }
  template <class Element>
  SYMMETRA_DEVICE Words<4> load(uint32_t rank, uint32_t, uint32_t packet) const {
    return Row<Element>(travelling(args_, rank, token_), 0, args_.hidden).load(packet);
  }

 private:
  const ExpertArgs& args_;
  uint32_t token_;
};

/// Parts of a token of this rank in the regions of the ranks that give them.
class PartsThere {
 public:
  static constexpr bool kAllSteps = false;
  SYMMETRA_DEVICE PartsThere(const ExpertArgs& args, uint32_t token) : args_(args), token_(token) {}
  SYMMETRA_DEVICE bool gave_up() const { return false; }
  template <class Element>
  SYMMETRA_DEVICE Words<4> load(uint32_t rank, uint32_t, uint32_t packet) const {
    return Row<Element>(in_region(args_, rank, args_.rank, token_), 0, args_.hidden).load(packet);
  }

 private:
  const ExpertArgs& args_;
  uint32_t token_;
};

/// Parts of a token of this rank that come in packets.
class PartsInPackets {
 public:
  static constexpr bool kAllSteps = true;
  SYMMETRA_DEVICE PartsInPackets(const ExpertArgs& args, const ExpertPackets& packets, device::Waiter& waiter, uint32_t token)
      : args_(args), packets_(packets), waiter_(waiter), token_(token) {}
  /// Whether parts are undefined.
  SYMMETRA_DEVICE bool gave_up() const { return waiter_.gave_up(); }
  template <class Element>
  SYMMETRA_DEVICE Words<4> load(uint32_t rank, uint32_t step, uint32_t packet) const {
    const uint64_t number = args_.exact != 0 ? uint64_t{token_} * args_.top_k + step : uint64_t{rank} * args_.max_tokens + token_;
    Packet* const from = packets_.row(args_.rank, number, row_packets<RowProtocol>(args_.row_bytes));
    return await_bytes<RowProtocol>(waiter_, rank, from, packet, packets_.epoch());
  }

 private:
  const ExpertArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  uint32_t token_;
};

/// Sums the parts of a token of this rank: of ranks in their order; exact, the token's results in the order of its experts,
/// all at once or one a step.
template <class Element, class Parts>
SYMMETRA_DEVICE void take_token(const ExpertArgs& args, uint32_t token, const Parts& parts) {
  constexpr uint32_t kCount = kValues<Element, 4>;
  const Heads heads(args);
  const ExpertTable table(args);
  const uint16_t* const copies = heads.copies(args.rank) + uint64_t{token} * args.top_k;
  const float* const weights = heads.weights(args.rank) + uint64_t{token} * args.top_k;
  const bool exact = args.exact != 0, one = exact && !Parts::kAllSteps, weighs = exact && args.weighs != 0;
  const uint32_t begin = one ? args.step : 0, end = one ? args.step + 1 : args.top_k;
  uint32_t givers = 0;  // a bit a rank
  for (uint32_t k = 0; k < args.top_k; ++k) {
    if (copies[k] != kNoCopy) givers |= 1u << table.rank_of(copies[k]);
  }
  const Row<Element> output(args.output, uint64_t{token} * args.hidden, args.hidden);
  const Row<Element> more(args.add, uint64_t{token} * args.hidden, args.hidden);
  float* const kept = args.sums + uint64_t{token} * output.packets() * kCount;
  for (uint32_t packet = platform::thread(); packet < output.packets(); packet += platform::threads()) {
    float sums[kCount] = {};
    for (uint32_t i = 0; i < kCount && begin > 0; ++i) sums[i] = kept[packet * kCount + i];
    for (uint32_t k = begin; k < end && exact; ++k) {
      if (copies[k] == kNoCopy) continue;
      const Words<4> part = parts.template load<Element>(table.rank_of(copies[k]), k, packet);
      add_packet<Element>(sums, part, weighs, weighs ? weights[k] : 1.0f);
    }
    for (uint32_t rank = 0; rank < args.world && !exact; ++rank) {
      if ((givers >> rank & 1) != 0) add_packet<Element>(sums, parts.template load<Element>(rank, 0, packet), false, 1.0f);
    }
    if (end < args.top_k) {
      for (uint32_t i = 0; i < kCount; ++i) kept[packet * kCount + i] = sums[i];
      continue;
    }
    if (parts.gave_up()) continue;
    if (args.add != nullptr) add_packet<Element>(sums, more.load(packet), false, 1.0f);
    output.store(packet, Element::template pack<4>(sums));
  }
}

/// The own tokens that a combine sums: none after a dispatch that failed.
SYMMETRA_DEVICE uint32_t taken_tokens(const ExpertArgs& args) {
  return ExpertState(args).failed() != 0 ? 0 : Heads(args).tokens(args.rank);
}

/// Sums the parts of each token of this rank. A block takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_take(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const uint32_t tokens = taken_tokens(args);
  for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) {
    take_token<Element>(args, token, PartsHere(args, token));
  }
  platform::release_next();
}

/// Sums the parts of each token of this rank, between two barriers, out of the regions of the ranks that give them. A block
/// takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_pull(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const uint32_t tokens = taken_tokens(args);
  BlockBarrier barrier(args, args.world, call, args.op);
  if (barrier.enter()) {
    for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) {
      take_token<Element>(args, token, PartsThere(args, token));
    }
  }
  platform::release_next();
  barrier.leave();
  end_call(args.calls, args.wait, call.epoch, 0);
}

/// Awaits the parts of each token of this rank, and sums them. The first block awaits the greetings of all ranks. A block
/// takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_sum(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, call.epoch);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  const uint32_t tokens = taken_tokens(args);
  for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) {
    take_token<Element>(args, token, PartsInPackets(args, packets, waiter, token));
  }
  if (platform::block() == 0) {
    for (uint32_t rank = platform::thread(); rank < args.world; rank += platform::threads()) {
      const Packet* const greeting = packets.telling(args.rank, rank, 0);
      waiter.until(rank, [&] { return ByteProtocol::arrived(platform::load_packet(greeting), call.epoch); });
    }
  }
  platform::release_next();
  platform::sync_block();  // all have read the state
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
