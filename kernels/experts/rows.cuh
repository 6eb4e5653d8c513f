// Rows on their way to experts: staging in the wire format, and copying from there to their places.
#pragma once
#include "kernels/experts/place.cuh"
#include "kernels/norm/rows.cuh"

namespace symmetra::kernels {

/// A row of bytes.
using Bytes = Row<U8>;

/// Packets of `bytes` bytes.
SYMMETRA_DEVICE uint32_t byte_packets(uint64_t bytes) { return static_cast<uint32_t>((bytes + 15) / 16); }

/// Groups of a row that have a scale each.
SYMMETRA_DEVICE uint32_t code_groups(const ExpertArgs& args) { return (args.hidden + kCodeGroup - 1) / kCodeGroup; }

/// The row or part of a token of a rank. A row has `bytes` bytes. The rows of all ranks begin at `first`: [rank][max_tokens].
SYMMETRA_DEVICE uint8_t* of_token(const ExpertArgs& args, uint8_t* first, uint64_t bytes, uint32_t rank, uint32_t token) {
  return first + (uint64_t{rank} * args.max_tokens + token) * bytes;
}

/// Bytes of the scales of a row.
SYMMETRA_DEVICE uint32_t scale_bytes(const RowArgs& args) { return code_groups(args) * (args.scales == kCodeScalesE8M0 ? 1 : 4); }

/// The address at an offset from the region of a rank: an operand that peers address.
SYMMETRA_DEVICE uint8_t* in_reach(const ExpertPeers& peers, uint32_t rank, uint64_t offset) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(peers.regions[rank]) + offset);
}

/// The ranks of a token's experts, which the threads of a block find together.
class TokenRanks {
 public:
  /// `words`: kMostTopK words in block-shared memory, at a multiple of sixteen bytes.
  SYMMETRA_DEVICE TokenRanks(const ExpertArgs& args, uint32_t* words) : args_(args), words_(words) {}

  /// Stores the rank of each expert, which `rank(k)` returns: kNoRank for none. The last threads do this, because they
  /// have the least work of a row. `skips`: the block sends nothing of the token. Only the last thread decides: other
  /// threads may have read another count.
  template <class Rank>
  SYMMETRA_DEVICE void begin(Rank rank, bool skips = false) const {
    for (uint32_t k = platform::threads() - 1 - platform::thread(); k < words(); k += platform::threads()) {
      const uint32_t its = k < args_.top_k ? rank(k) : kNoRank;
      words_[k] = (its != kNoRank ? 1u << its : 0) | (k == 0 && skips ? kSkips : 0);
    }
  }
  /// Reads what all threads have stored. All threads of the block call it.
  SYMMETRA_DEVICE void meet() {
    platform::sync_block();
    ranks_ = 0;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < words(); k += 4) {
      const auto four = platform::load_shared<Words<4>>(words_ + k);
      ranks_ |= four.word[0] | four.word[1] | four.word[2] | four.word[3];
    }
  }
  /// Whether the block sends nothing of the token; equal on all threads.
  SYMMETRA_DEVICE bool skips() const { return (ranks_ & kSkips) != 0; }
  SYMMETRA_DEVICE bool has(uint32_t rank) const { return (ranks_ >> rank & 1) != 0; }
  SYMMETRA_DEVICE uint32_t bits() const { return ranks_; }
  /// Calls `body` with each rank.
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    each_rank(args_, [&](uint32_t rank) {
      if (has(rank)) body(rank);
    });
  }

 private:
  /// A bit that no rank uses.
  static constexpr uint32_t kSkips = 1u << 31;
  static_assert(kMaxWorld < 31);

  SYMMETRA_DEVICE uint32_t words() const { return (args_.top_k + 3) / 4 * 4; }  // read four words at once

  const ExpertArgs& args_;
  uint32_t* words_;
  uint32_t ranks_ = 0;  ///< one bit for each rank, and kSkips
};

/// Copies bytes between rows by the threads of the block.
SYMMETRA_DEVICE void copy_bytes(const Bytes& into, const Bytes& from) {
  for (uint32_t packet = platform::thread(); packet < from.packets(); packet += platform::threads()) into.store(packet, from.load(packet));
}

/// Writes the metadata of received rows.
class RowOutputs {
 public:
  SYMMETRA_DEVICE RowOutputs(const RowArgs& args, const ExpertOutputs& into) : args_(args), into_(into), headers_(args), places_(args) {}

  /// The bits of the scale of a group of a staged row.
  SYMMETRA_DEVICE uint32_t scale(const uint8_t* from, uint32_t group) const {
    return args_.scales == kCodeScalesE8M0 ? from[group] : platform::load<uint32_t>(from + uint64_t{group} * 4);
  }

  /// Writes the scale of a group of a row at `place`. `expert`: in the padded layout, the local expert of the row.
  SYMMETRA_DEVICE void put_scale(uint32_t bits, uint32_t group, uint32_t place, uint32_t expert) const {
    const uint64_t at = scale_at(group, place, expert);
    if (args_.scales == kCodeScalesE8M0) {
      static_cast<uint8_t*>(into_.scales)[at] = static_cast<uint8_t>(bits);
    } else {
      static_cast<uint32_t*>(into_.scales)[at] = bits;
    }
  }

  /// Writes all scales of a row, by the threads of the block.
  SYMMETRA_DEVICE void scales(const uint8_t* from, uint32_t place, uint32_t expert) const {
    if (into_.scales == nullptr) return;
    for (uint32_t group = platform::thread(); group < code_groups(args_); group += platform::threads()) {
      put_scale(scale(from, group), group, place, expert);
    }
  }

  /// Writes packet `i` of the scales of a row at `place`.
  SYMMETRA_DEVICE void scale_packet(const Words<4>& data, uint32_t i, uint32_t place, uint32_t expert) const {
    if (into_.scales == nullptr) return;
    const uint32_t bits = args_.scales == kCodeScalesE8M0 ? 8 : 32, groups = code_groups(args_);
    const uint64_t low = uint64_t{data.word[1]} << 32 | data.word[0], high = uint64_t{data.word[3]} << 32 | data.word[2];
    uint32_t group = i * (128 / bits);
    SYMMETRA_ROLLED
    for (uint32_t shift = 0; shift < 128 && group < groups; shift += bits, ++group) {
      put_scale(static_cast<uint32_t>(shift < 64 ? low >> shift : high >> (shift - 64)), group, place, expert);
    }
  }

  /// Writes the source of a row. One thread calls it.
  SYMMETRA_DEVICE void source(uint32_t place, uint32_t rank, uint32_t token) const {
    if (into_.sources == nullptr) return;
    into_.sources[uint64_t{place} * 2] = rank;
    into_.sources[uint64_t{place} * 2 + 1] = token;
  }

  /// Writes the expert of a row at `place`, and its weight.
  SYMMETRA_DEVICE void expert(uint32_t place, uint32_t expert, float weight) const {
    if (platform::thread() != 0) return;
    if (into_.ids != nullptr) into_.ids[place] = static_cast<int32_t>(expert);
    if (into_.weights != nullptr) into_.weights[place] = weight;
  }

  /// The replica of one of a token's experts, and its weight.
  struct Expert {
    uint32_t replica;
    float weight;
  };
  SYMMETRA_DEVICE Expert expert_of(uint32_t k, uint32_t rank, uint32_t token) const {
    const uint32_t pair = token * args_.top_k + k;
    return {headers_.replicas(rank)[pair], into_.weights != nullptr ? headers_.weights(rank)[pair] : 0.0f};
  }

  /// By rank and by source, writes one of the experts of a token whose row is at `place`.
  SYMMETRA_DEVICE void put_expert(Expert expert, uint32_t k, uint32_t place, uint32_t rank, uint32_t token) const {
    const bool here = headers_.is_here(expert.replica);
    const uint64_t at = uint64_t{place} * args_.top_k + k;
    if (into_.ids != nullptr) into_.ids[at] = here ? static_cast<int32_t>(expert.replica) : -1;
    if (into_.weights != nullptr) into_.weights[at] = here ? expert.weight : 0.0f;
    if (into_.index != nullptr && here) {
      const uint64_t pair = (uint64_t{rank} * args_.max_tokens + token) * args_.top_k + k;
      into_.index[places_.pairs[pair]] = place;
    }
  }

  /// Writes all experts of a token, by the threads of the block.
  SYMMETRA_DEVICE void experts(uint32_t place, uint32_t rank, uint32_t token) const {
    for (uint32_t k = platform::thread(); k < args_.top_k; k += platform::threads()) {
      put_expert(expert_of(k, rank, token), k, place, rank, token);
    }
  }

  /// By source, writes expert id -1 and weight 0 for one expert of a token without an expert here.
  SYMMETRA_DEVICE void no_expert(uint32_t place, uint32_t k) const {
    if (args_.layout != kRowsBySource) return;
    const uint64_t at = uint64_t{place} * args_.top_k + k;
    if (into_.ids != nullptr) into_.ids[at] = -1;
    if (into_.weights != nullptr) into_.weights[at] = 0.0f;
  }

  /// By source, writes expert id -1 and weight 0 for all experts of a token without an expert here, by the threads of the block.
  SYMMETRA_DEVICE void no_expert(uint32_t place) const {
    for (uint32_t k = platform::thread(); k < args_.top_k; k += platform::threads()) no_expert(place, k);
  }

 private:
  /// The index of the scale of a group of a row at `place`.
  SYMMETRA_DEVICE uint64_t scale_at(uint32_t group, uint32_t place, uint32_t expert) const {
    const uint64_t groups = code_groups(args_);
    if (into_.columns == 0) return place * groups + group;
    if (args_.layout != kRowsPadded) return group * into_.scale_rows + place;
    return (expert * groups + group) * into_.scale_rows + place - uint64_t{expert} * args_.capacity;
  }

  const RowArgs& args_;
  const ExpertOutputs& into_;
  Headers headers_;
  Places places_;
};

/// Copies received rows to their places. A block takes a token of a rank.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_copy(SYMMETRA_ARGS(MoveArgs) args) {
  const Headers headers(args);
  const Places places(args);
  const RowOutputs outputs(args, args.into);
  platform::wait_prior();
  const uint32_t units = ExpertState(args).failed() != 0 ? 0 : args.world * args.max_tokens;
  for (uint32_t unit = platform::block(); unit < units; unit += platform::blocks()) {
    const uint32_t rank = unit / args.max_tokens, token = unit % args.max_tokens;
    if (token >= headers.tokens(rank)) {
      outputs.no_expert(unit);
      continue;
    }
    const uint8_t* const from = of_token(args, args.staged, args.row_bytes, rank, token);
    const auto put = [&](uint32_t place, uint32_t expert) {
      copy_bytes(Bytes(args.into.rows, uint64_t{place} * args.payload_bytes, args.payload_bytes), Bytes(from, 0, args.payload_bytes));
      outputs.scales(from + args.scales_offset, place, expert);
      if (platform::thread() == 0) outputs.source(place, rank, token);
    };
    if (is_by_token(args)) {
      const uint32_t found = place_of(args, headers, rank, token);
      if (found == kNone) {
        outputs.no_expert(unit);
        continue;
      }
      put(found, 0);
      outputs.experts(found, rank, token);
      continue;
    }
    for (uint32_t k = 0; k < args.top_k; ++k) {
      const uint32_t pair = token * args.top_k + k;
      uint32_t replica = headers.replicas(rank)[pair];
      if (!headers.is_here(replica)) continue;
      const uint32_t place = places.pairs[uint64_t{rank} * args.max_tokens * args.top_k + pair];
      put(place, replica);
      outputs.expert(place, replica, args.into.weights != nullptr ? headers.weights(rank)[pair] : 0.0f);
    }
  }
  platform::release_next();
}

/// Writes the metadata of rows that are already in their places, for layouts with one row for each token. A thread
/// takes a scale or an expert of a token of a rank.
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) expert_metadata(SYMMETRA_ARGS(MoveArgs) args) {
  const Headers headers(args);
  const RowOutputs outputs(args, args.into);
  platform::wait_prior();
  const uint32_t units = ExpertState(args).failed() != 0 ? 0 : args.world * args.max_tokens;
  const uint32_t groups = args.into.scales != nullptr ? code_groups(args) : 0, width = groups > args.top_k ? groups : args.top_k;
  // One thread for each item of a token, for as many tokens at once as the block has threads for.
  const uint32_t lanes = width < platform::threads() ? width : platform::threads(), at_once = platform::threads() / lanes;
  const uint32_t mine = platform::thread() / lanes, first = platform::thread() - mine * lanes;
  for (uint32_t unit = platform::block() * at_once + mine; unit < units && mine < at_once; unit += platform::blocks() * at_once) {
    const uint32_t rank = unit / args.max_tokens, token = unit % args.max_tokens;
    const uint32_t tokens = headers.tokens(rank), place = place_of(args, headers, rank, token);
    const uint8_t* const scales = of_token(args, args.staged, args.row_bytes, rank, token) + args.scales_offset;
    for (uint32_t item = first; item < width; item += lanes) {
      // All loads are issued at once, even for a token without a row here.
      const uint32_t scale = item < groups ? outputs.scale(scales, item) : 0;
      const RowOutputs::Expert expert = item < args.top_k ? outputs.expert_of(item, rank, token) : RowOutputs::Expert{};
      if (token >= tokens || place == kNone) {
        if (item < args.top_k) outputs.no_expert(unit, item);
        continue;
      }
      if (item < groups) outputs.put_scale(scale, item, place, 0);
      if (item < args.top_k) outputs.put_expert(expert, item, place, rank, token);
      if (item == 0) outputs.source(place, rank, token);
    }
  }
  platform::release_next();
}

}  // namespace symmetra::kernels
