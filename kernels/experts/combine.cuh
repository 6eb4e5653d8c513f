// Results on their way back: what this rank gives each token, and what a token takes from all ranks. Products are rounded
// before they are added, in f32, in an order that the ids alone decide.
#pragma once
#include "kernels/experts/rows.cuh"

namespace symmetra::kernels {

/// Adds a packet of values, each times a weight, or as they are.
template <class Element, uint32_t kCount>
SYMMETRA_DEVICE void add_packet(float (&sums)[kCount], const Words<4>& packet, bool weighs, float weight) {
  float values[kCount];
  Element::unpack(packet, values);
  SYMMETRA_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) sums[i] = platform::add(sums[i], weighs ? platform::multiply(values[i], weight) : values[i]);
}

/// Makes the part of each token: the sum of its results here by their weights, in the order of its experts; by rank the
/// caller's row; exact, the result of one of its experts. A block takes a token of a rank.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_give(SYMMETRA_ARGS(ExpertArgs) args) {
  constexpr uint32_t kCount = kValues<Element, 4>;
  const Heads heads(args);
  const Places places(args);
  platform::wait_prior();
  const uint32_t units = ExpertState(args).failed() != 0 ? 0 : args.world * args.max_tokens;
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    const uint32_t rank = unit / args.max_tokens, token = unit % args.max_tokens;
    if (token >= heads.tokens(rank)) continue;
    const Row<Element> part(travelling(args, rank, token), 0, args.hidden);
    const auto result = [&](uint32_t place) { return Row<Element>(args.rows, uint64_t{place} * args.hidden, args.hidden); };
    const auto place_of = [&](uint32_t k) {
      const uint32_t pair = token * args.top_k + k;
      uint32_t copy = heads.copies(rank)[pair];
      return heads.is_here(copy) ? places.pairs[uint64_t{rank} * args.max_tokens * args.top_k + pair] : kNone;
    };
    if (args.layout == kRowsByRank || args.exact != 0) {
      const uint32_t place = args.layout == kRowsByRank ? places.tokens[unit] : place_of(args.step);
      if (place == kNone) continue;
      const Row<Element> from = result(place);
      for (uint32_t packet = platform::thread(); packet < part.packets(); packet += platform::threads())
        part.store(packet, from.load(packet));
      continue;
    }
    for (uint32_t packet = platform::thread(); packet < part.packets(); packet += platform::threads()) {
      float sums[kCount] = {};
      bool any = false;
      for (uint32_t k = 0; k < args.top_k; ++k) {
        const uint32_t place = place_of(k);
        if (place == kNone) continue;
        const float weight = args.weighs != 0 ? heads.weights(rank)[token * args.top_k + k] : 1.0f;
        add_packet<Element>(sums, result(place).load(packet), args.weighs != 0, weight);
        any = true;
      }
      if (!any) break;
      part.store(packet, Element::template pack<4>(sums));
    }
  }
  platform::release_next();
}

/// The part of a token that a rank gave, among those that came here.
struct PartsHere {
  SYMMETRA_DEVICE static const uint8_t* of(const ExpertArgs& args, uint32_t rank, uint32_t token) { return travelling(args, rank, token); }
};
/// The part of a token that a rank gives, in its region.
struct PartsThere {
  SYMMETRA_DEVICE static const uint8_t* of(const ExpertArgs& args, uint32_t rank, uint32_t token) {
    return in_region(args, rank, args.rank, token);
  }
};

/// Sums the parts of a token of this rank: of ranks in their order; exact, one result of the token a step, in the order of
/// its experts.
template <class Element, class Parts>
SYMMETRA_DEVICE void take_token(const ExpertArgs& args, uint32_t token) {
  constexpr uint32_t kCount = kValues<Element, 4>;
  const Heads heads(args);
  const ExpertTable table(args);
  const uint16_t* const copies = heads.copies(args.rank) + uint64_t{token} * args.top_k;
  const bool first = args.exact == 0 || args.step == 0, last = args.exact == 0 || args.step + 1 == args.top_k;
  uint32_t givers = 0;  // a bit a rank
  for (uint32_t k = 0; k < args.top_k; ++k) {
    if ((args.exact == 0 || k == args.step) && copies[k] != kNoCopy) givers |= 1u << table.rank_of(copies[k]);
  }
  const bool weighs = args.exact != 0 && args.weighs != 0;
  const float weight = weighs ? heads.weights(args.rank)[token * args.top_k + args.step] : 1.0f;
  const Row<Element> output(args.output, uint64_t{token} * args.hidden, args.hidden);
  const Row<Element> more(args.add, uint64_t{token} * args.hidden, args.hidden);
  float* const kept = args.sums + uint64_t{token} * output.packets() * kCount;
  for (uint32_t packet = platform::thread(); packet < output.packets(); packet += platform::threads()) {
    float sums[kCount] = {};
    for (uint32_t i = 0; i < kCount && !first; ++i) sums[i] = kept[packet * kCount + i];
    for (uint32_t rank = 0; rank < args.world; ++rank) {
      if ((givers >> rank & 1) == 0) continue;
      add_packet<Element>(sums, Row<Element>(Parts::of(args, rank, token), 0, args.hidden).load(packet), weighs, weight);
    }
    if (!last) {
      for (uint32_t i = 0; i < kCount; ++i) kept[packet * kCount + i] = sums[i];
      continue;
    }
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
  for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) take_token<Element, PartsHere>(args, token);
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
    for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) take_token<Element, PartsThere>(args, token);
  }
  platform::release_next();
  barrier.leave();
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
