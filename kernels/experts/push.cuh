// A dispatch by direct access: a rank writes its rows into the memory of the ranks of their experts.
#pragma once
#include "kernels/experts/barrier.cuh"
#include "kernels/experts/heard.cuh"

namespace symmetra::kernels {

/// Where one of the own rows goes: to the ranks of the token's experts. Peers address the place of the row there, or the row
/// goes into the region. Its scales always do.
class TheirRows {
 public:
  SYMMETRA_DEVICE TheirRows(const ExpertArgs& args, uint32_t token) : args_(args), places_(Places(args).there + token), token_(token) {
    for (uint32_t rank = 0; rank < args.world; ++rank) ranks_ |= place(rank) != kNone ? 1u << rank : 0;
  }

  /// Calls `store` with each place of the row, and of its scales. Ranks start at different peers, so that they do not all write
  /// to one at once.
  template <class Store>
  SYMMETRA_DEVICE void rows(Store store) const {
    each([&](uint32_t rank) {
      store(args_.placed_offset == kStaged ? in_region(args_, rank, args_.rank, token_)
                                           : in_place(args_, rank, place(rank), args_.payload_bytes));
    });
  }
  template <class Store>
  SYMMETRA_DEVICE void scales(Store store) const {
    each([&](uint32_t rank) { store(in_region(args_, rank, args_.rank, token_) + args_.scales_offset); });
  }

 private:
  SYMMETRA_DEVICE uint32_t place(uint32_t rank) const { return places_[uint64_t{rank} * args_.max_tokens]; }
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    SYMMETRA_ROLLED
    for (uint32_t k = 1; k <= args_.world; ++k) {
      const uint32_t rank = args_.rank + k < args_.world ? args_.rank + k : args_.rank + k - args_.world;
      if ((ranks_ >> rank & 1) != 0) body(rank);
    }
  }

  const ExpertArgs& args_;
  const uint32_t* places_;
  uint32_t token_;
  uint32_t ranks_ = 0;  ///< a bit a rank
};

/// Writes the own rows, between two barriers, to the ranks that they go to: none after counts that failed. A block takes a
/// token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_push(SYMMETRA_ARGS(ExpertArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const uint32_t tokens = ExpertState(args).failed() != 0 ? 0 : Heads(args).tokens(args.rank);
  GridBarrier barrier(args, call, platform::shared<uint32_t>());
  if (barrier.enter()) {
    for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) {
      send_row<Element>(args, token, TheirRows(args, token));
    }
  }
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

/// By source, heads travel with the rows: what the head of a rank begins with is read in the memory of that rank, and pairs are written
/// into that of all ranks.
class TravellingHeads {
 public:
  /// `words`: of block-shared memory, kHeadWords for each rank.
  SYMMETRA_DEVICE TravellingHeads(const ExpertArgs& args, uint32_t* words)
      : args_(args), heads_(args), words_(words), offset_(static_cast<uint64_t>(args.heads - args.regions[args.rank])) {}

  /// Behind the barrier: whether nothing is wrong with the heads of all ranks. If something is, all ranks find the same.
  SYMMETRA_DEVICE bool are_right() const {
    for (uint32_t i = platform::thread(); i < args_.world * 2; i += platform::threads()) {
      const uint32_t source = i / 2;
      const uint8_t* const head = args_.regions[source] + offset_ + source * args_.head_bytes;
      platform::store_shared(words_ + i * 4, platform::load<Words<4>>(head + i % 2 * sizeof(Words<4>)));
    }
    platform::sync_block();
    const auto word = [&](uint32_t source, uint32_t i) { return words_[source * kHeadWords + i]; };
    const bool wrong = reports_heads(args_, word);
    if (platform::block() != 0) return !wrong;
    for (uint32_t source = platform::thread(); source < args_.world; source += platform::threads()) {
      if (source != args_.rank) heads_.head(source)->tokens = word(source, 0);
    }
    if (platform::thread() == 0) {
      const ExpertState state(args_);
      state.failed() = wrong;
      state.rows() = static_cast<uint32_t>(args_.capacity);
    }
    return !wrong;
  }

  /// Writes the pairs of own tokens to all ranks: a block takes some of them.
  SYMMETRA_DEVICE void share() const {
    const uint32_t pairs = heads_.tokens(args_.rank) * args_.top_k;
    share(args_.copies_offset, (pairs * 2 + 15) / 16);
    share(args_.weights_offset, (pairs * 4 + 15) / 16);
  }

 private:
  /// So many packets of the own head from an offset on. Heads have room for whole packets.
  SYMMETRA_DEVICE void share(uint64_t offset, uint32_t packets) const {
    const uint64_t own = args_.rank * args_.head_bytes + offset;
    const uint32_t step = platform::blocks() * platform::threads();
    for (uint32_t i = platform::block() * platform::threads() + platform::thread(); i < packets; i += step) {
      const uint64_t at = own + uint64_t{i} * sizeof(Words<4>);
      const auto data = platform::load<Words<4>>(args_.heads + at);
      for (uint32_t k = 1; k < args_.world; ++k) {
        const uint32_t rank = args_.rank + k < args_.world ? args_.rank + k : args_.rank + k - args_.world;
        platform::store(args_.regions[rank] + offset_ + at, data);
      }
    }
  }

  const ExpertArgs& args_;
  Heads heads_;
  uint32_t* words_;
  uint64_t offset_;  ///< of heads in a region
};

/// Writes the own rows to the places of their source and tokens on the ranks that they go to, and their pairs to all ranks, between two
/// barriers: none if something is wrong with a head. A block takes a token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_push_by_source(SYMMETRA_ARGS(ExpertArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  GridBarrier barrier(args, call, words);
  const TravellingHeads heads(args, words + kMaxWorld);
  const uint32_t tokens = Heads(args).tokens(args.rank);
  if (barrier.enter() && heads.are_right()) {
    heads.share();
    for (uint32_t token = platform::block(); token < tokens; token += platform::blocks()) {
      send_row<Element>(args, token, TheirRows(args, token));
    }
  }
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
