// A combine by direct access, for layouts where a token has one row on a rank: sums read the results in place.
#pragma once
#include "kernels/experts/combine.cuh"

namespace symmetra::kernels {

/// Sums the parts of own tokens in rank order, from the results of their ranks.
template <class Element>
class Puller {
 public:
  SYMMETRA_DEVICE explicit Puller(const CombineDirectArgs& args) : args_(args) {}

  /// Loads the places of the next token's parts, of the first ranks.
  SYMMETRA_DEVICE void find(uint32_t token) { find(token, 0, next_); }

  /// Sums the token whose parts were found last. `find_next`: finds the parts of the next token concurrently.
  template <class Find>
  SYMMETRA_DEVICE void sum(const TokenPart& part, Find find_next) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kRanks; ++i) places_[i] = next_[i];
    find_next();
    const Row<Element> output(args_.output, uint64_t{part.unit} * args_.hidden, args_.hidden);
    SYMMETRA_ROLLED
    for (uint32_t first = part.first; first < output.packets(); first += kAhead * part.step) {
      float sums[kAhead][kCount] = {};
      SYMMETRA_ROLLED
      for (uint32_t begin = 0; begin < args_.world; begin += kRanks) {
        if (args_.world > kRanks) find(part.unit, begin, places_);
        add(first, part.step, output.packets(), begin, sums);
      }
      SYMMETRA_UNROLL
      for (uint32_t j = 0; j < kAhead; ++j) {
        const uint32_t packet = first + j * part.step;
        if (packet >= output.packets()) continue;
        if (args_.add != nullptr) {
          const Row<Element> more(args_.add, uint64_t{part.unit} * args_.hidden, args_.hidden);
          add_packet<Element>(sums[j], more.load(packet), false, 1.0f);
        }
        output.store(packet, Element::template pack<4>(sums[j]));
      }
    }
  }

 private:
  /// Values of a packet; ranks whose parts are loaded at once, and packets of each part.
  static constexpr uint32_t kCount = kValues<Element, 4>;
  static constexpr uint32_t kRanks = platform::kTeam == 1 ? 1 : 4, kAhead = platform::kTeam == 1 ? 1 : 2;

  SYMMETRA_DEVICE void find(uint32_t token, uint32_t begin, uint32_t (&places)[kRanks]) const {
    const uint32_t* const there = Places(args_).there + token;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kRanks; ++i) {
      places[i] = begin + i < args_.world ? there[uint64_t{begin + i} * args_.max_tokens] : kNone;
    }
  }

  /// Adds packets of the ranks from `begin` on. All loads precede the first sum, because loads from a peer have a high
  /// latency.
  SYMMETRA_DEVICE void add(uint32_t first, uint32_t step, uint32_t packets, uint32_t begin, float (&sums)[kAhead][kCount]) const {
    Words<4> loaded[kAhead][kRanks];
    SYMMETRA_UNROLL
    for (uint32_t j = 0; j < kAhead; ++j) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kRanks; ++i) {
        if (places_[i] == kNone || first + j * step >= packets) continue;
        const uint8_t* const results = in_reach(args_.peers, begin + i, args_.results_offset);
        const Row<Element, true> row(results + places_[i] * args_.part_bytes, 0, args_.hidden);
        loaded[j][i] = row.load(first + j * step);
      }
    }
    SYMMETRA_UNROLL
    for (uint32_t j = 0; j < kAhead; ++j) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kRanks; ++i) {
        if (places_[i] != kNone && first + j * step < packets) add_packet<Element>(sums[j], loaded[j][i], false, 1.0f);
      }
    }
  }

  const CombineDirectArgs& args_;
  uint32_t places_[kRanks];
  uint32_t next_[kRanks];
};

/// Sums the parts of each token of this rank, between two barriers, from the results of their ranks. A block takes a
/// token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_pull(SYMMETRA_ARGS(CombineDirectArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  auto* const words = platform::shared<uint32_t>();
  GridBarrier barrier(args, args.peers, kOpCombine, call, words);
  barrier.begin();
  Turns turns(args, call, uint64_t{args.tokens} * args.sharers, words + kMaxWorld);
  Puller<Element> puller(args);
  const uint32_t items = summed_tokens(args) * args.sharers;
  const auto find = [&](uint32_t item) {
    if (item < items) puller.find(TokenPart(args, item).unit);
  };
  platform::sync_block();
  uint32_t item = turns.unit();
  find(item);
  turns.ask();
  if (barrier.enter()) {
    SYMMETRA_ROLLED
    while (item < items) {
      const uint32_t next = turns.unit();
      turns.ask();
      puller.sum(TokenPart(args, item), [&] { find(next); });
      platform::sync_block();
      item = next;
    }
  }
  platform::release_next();
  barrier.leave(false);
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
