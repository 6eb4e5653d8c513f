// A dispatch by direct access: a rank writes its rows into the memory of the ranks of their experts.
#pragma once
#include "kernels/experts/barrier.cuh"
#include "kernels/experts/row_stream.cuh"

namespace symmetra::kernels {

/// The targets of an own row: the ranks of the token's experts. The row goes to its place if peers address that memory,
/// and otherwise into the region; the same holds for its scales. `Place`: returns the place of the row on a rank.
template <class Place>
class TheirRows {
 public:
  /// `ranks`: one bit for each rank.
  SYMMETRA_DEVICE TheirRows(const PushArgs& args, uint32_t token, uint32_t ranks, const Place& place)
      : args_(args), token_(token), ranks_(ranks), place_(place) {}

  /// Calls `store` with each place of the row (`rows`) or of its scales (`scales`).
  template <class Store>
  SYMMETRA_DEVICE void rows(Store store) const {
    each([&](uint32_t rank) {
      store(args_.placed.rows == kStaged ? staged(rank)
                                         : in_reach(args_.peers, rank, args_.placed.rows) + place_(rank) * uint64_t{args_.payload_bytes});
    });
  }
  template <class Store>
  SYMMETRA_DEVICE void scales(Store store) const {
    each([&](uint32_t rank) {
      store(args_.placed.scales == kStaged
                ? staged(rank) + args_.scales_offset
                : in_reach(args_.peers, rank, args_.placed.scales) + uint64_t{place_(rank)} * scale_bytes(args_));
    });
  }

 private:
  /// The staged row in the region of a rank.
  SYMMETRA_DEVICE uint8_t* staged(uint32_t rank) const {
    return of_token(args_, args_.peers.regions[rank] + args_.staged_offset, args_.row_bytes, args_.rank, token_);
  }
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    each_rank(args_, [&](uint32_t rank) {
      if ((ranks_ >> rank & 1) != 0) body(rank);
    });
  }

  const PushArgs& args_;
  uint32_t token_;
  uint32_t ranks_;
  const Place& place_;
};

/// Writes the own rows, between two barriers, to the ranks of their experts: none after a failed count. A block takes a
/// token.
template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_push(SYMMETRA_ARGS(PushArgs) args) {
  auto* const words = platform::shared<uint32_t>();
  platform::wait_prior();
  const Call call = begin_call(args.calls, args.wait);
  const uint32_t tokens = ExpertState(args).failed() != 0 ? 0 : Headers(args).tokens(args.rank);
  GridBarrier barrier(args, args.peers, kOpDispatch, call, words);
  barrier.begin();
  Turns turns(args, call, args.tokens, words + kMaxWorld);
  platform::sync_block();
  RowStream<Element> stream(args, args.rows);
  uint32_t token = turns.unit();
  if (token < tokens) stream.begin(token);
  turns.ask();
  if (barrier.enter()) {
    SYMMETRA_ROLLED
    while (token < tokens) {
      const uint32_t next = turns.unit();
      const uint32_t* const places = Places(args).there + token;
      const auto place = [&](uint32_t rank) { return places[uint64_t{rank} * args.max_tokens]; };
      uint32_t ranks = 0;
      for (uint32_t rank = 0; rank < args.world; ++rank) ranks |= place(rank) != kNone ? 1u << rank : 0;
      turns.ask();
      stream.send(token, next < tokens ? next : kNone, TheirRows(args, token, ranks, place));
      platform::sync_block();
      token = next;
    }
  }
  platform::release_next();
  barrier.leave(true);
  end_call(args.calls, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
