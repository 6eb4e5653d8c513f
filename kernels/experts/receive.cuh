// The receiving half of a dispatch in packets. Every block receives all routing headers and computes the places of its
// own rows, so blocks need not wait for each other.
#pragma once
#include "kernels/experts/arrived_headers.cuh"
#include "kernels/experts/targets.cuh"

namespace symmetra::kernels {

/// One receive, from the view of a block. Work that does not depend on the routing headers runs before waiting for
/// them. kByRank: whether the layout is kRowsByRank. One kernel for all layouts would have longer code.
template <class Protocol, bool kByRank>
class Receive {
 public:
  SYMMETRA_DEVICE Receive(const ReceiveArgs& args, const ExpertPackets& packets, device::Waiter& waiter, uint32_t* words)
      : args_(args),
        packets_(packets),
        waiter_(waiter),
        shared_(args, words),
        headers_(args, packets, waiter, shared_),
        targets_(args, args.into) {
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i < args.rows_at_once * shared_.stride; i += platform::threads()) shared_.places[i] = kNone;
    source_ = platform::block();
    advance();
    rows_packets_ = row_packets<Protocol>(args.row_bytes);
  }

  SYMMETRA_DEVICE const ArrivedHeaders& headers() const { return headers_; }
  /// Waits for the routing headers of all ranks. Returns false on all threads when the wait gave up.
  SYMMETRA_DEVICE bool await_headers() { return headers_.await(); }

  /// Receives the tokens of this block. Each block looks for errors in the headers. All ranks find the same error, and
  /// then no row gets a place.
  SYMMETRA_DEVICE void run() {
    begin_group();
    const bool stores_counts = platform::block() == platform::blocks() - 1;
    // In the by-rank layout, places of pairs are needed only if the caller requested an index.
    const bool pairs = !kByRank || args_.into.index != nullptr, counts = pairs || stores_counts;
    if (counts) headers_.tally(source_, first_, true);
    if (kByRank) headers_.tally_rows(source_, first_);
    // The first packet of the first row, and the first weight, are loaded while the block computes their places. They
    // could not be loaded earlier: they arrive after the headers.
    Incoming<Protocol, 1> ahead;
    ahead.none(0);
    Packet weight{};
    if (first_ < args_.max_tokens) {
      if (platform::thread() * 16 < args_.row_bytes) look(ahead, first_, platform::thread());
      if (from_end() < rows_ * args_.top_k) weight = platform::load_packet(weight_packet(first_ * args_.top_k + from_end()));
    }
    platform::sync_block();
    const bool wrong = headers_.is_wrong();
    if (stores_counts && platform::thread() == 0) ExpertState(args_).failed() = wrong;
    if (wrong) return;
    if (counts && args_.layout != kRowsPadded) place_experts();
    for (;;) {
      if (kByRank) place_rows();
      if (pairs) place_pairs();
      platform::sync_block();
      describe(weight);
      write_rows(ahead);
      source_ += platform::blocks();
      advance();
      if (first_ >= headers_.most()) break;
      ahead.none(0);
      weight = {};
      platform::sync_block();  // all threads have read what this block found
      SYMMETRA_ROLLED
      for (uint32_t i = platform::thread(); i <= args_.local; i += platform::threads()) shared_.before[i] = 0;  // and rows
      platform::sync_block();
      begin_group();
      if (pairs) headers_.tally(source_, first_, false);
      if (kByRank) headers_.tally_rows(source_, first_);
      platform::sync_block();
    }
    if (stores_counts) store_counts();
  }

 private:
  SYMMETRA_DEVICE uint32_t from_end() const { return platform::threads() - 1 - platform::thread(); }
  SYMMETRA_DEVICE const Packet* weight_packet(uint32_t pair) const {
    return packets_.control(args_.rank, source_, packets_.weights_at() + pair / 2);
  }
  /// The row of a pair of the block's tokens, among the rows of these tokens.
  SYMMETRA_DEVICE uint32_t row_of(uint32_t i) const { return args_.rows_at_once == 1 ? 0 : i / args_.top_k; }

  /// Converts the number of a group of tokens, in `source_`, to its source and first token. The groups of all sources
  /// are interleaved, so a block knows its first group before it knows the token counts.
  SYMMETRA_DEVICE void advance() {
    for (; source_ >= args_.world; source_ -= args_.world) first_ += args_.rows_at_once;
  }

  /// Lists the local experts of the block's tokens. A sync must follow.
  SYMMETRA_DEVICE void begin_group() {
    const uint32_t tokens = headers_.tokens(source_), rest = first_ < tokens ? tokens - first_ : 0;
    rows_ = rest < args_.rows_at_once ? rest : args_.rows_at_once;
    const uint32_t first = first_ * args_.top_k, count = rows_ * args_.top_k;
    SYMMETRA_ROLLED
    for (uint32_t i = from_end(); i < count; i += platform::threads()) {
      const uint32_t expert = headers_.replica_of(source_, first + i) - args_.first_replica;
      shared_.experts[i] = expert < args_.local ? expert : kNone;
    }
  }

  /// Computes the first row of each local expert, if experts do not have equal capacity.
  SYMMETRA_DEVICE void place_experts() {
    const Run run(args_.local);
    uint32_t aligned = 0;
    SYMMETRA_ROLLED
    for (uint32_t expert = run.begin; expert < run.end; ++expert) {
      aligned += aligned_rows(args_, shared_.pairs[args_.first_replica + expert]);
    }
    const uint32_t values[1] = {aligned};
    const Scanned<1> scanned = block_scan(values, shared_.scan);
    uint32_t offset = scanned.before[0];
    SYMMETRA_ROLLED
    for (uint32_t expert = run.begin; expert < run.end; ++expert) {
      shared_.offsets[expert] = offset;
      offset += aligned_rows(args_, shared_.pairs[args_.first_replica + expert]);
    }
    end_ = scanned.all[0];
    platform::sync_block();
  }
  SYMMETRA_DEVICE uint32_t offset_of(uint32_t expert) const {
    return args_.layout == kRowsPadded ? expert * static_cast<uint32_t>(args_.capacity) : shared_.offsets[expert];
  }

  /// By rank: computes the rows of the block's tokens, and the number of rows that this rank receives. Called after the
  /// tally of rows.
  SYMMETRA_DEVICE void place_rows() {
    const uint32_t rows = *shared_.rows;
    come_ = rows >> 16;
    const auto comes = [&](uint32_t row) {
      bool any = false;
      for (uint32_t k = 0; k < args_.top_k; ++k) any |= shared_.experts[row * args_.top_k + k] != kNone;
      return any;
    };
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i < rows_; i += platform::threads()) {
      uint32_t row = rows & 0xFFFF;
      SYMMETRA_ROLLED
      for (uint32_t earlier = 0; earlier < i; ++earlier) row += comes(earlier);
      shared_.places[i * shared_.stride] = comes(i) ? row : kNone;
    }
  }

  /// Computes the places of the pairs of the block's tokens.
  SYMMETRA_DEVICE void place_pairs() {
    const Places places(args_);
    const uint32_t first = first_ * args_.top_k, count = rows_ * args_.top_k;
    SYMMETRA_ROLLED
    for (uint32_t i = from_end(); i < count; i += platform::threads()) {
      const uint32_t expert = shared_.experts[i], row = row_of(i);
      uint32_t place = kNone;
      if (expert != kNone) {
        place = offset_of(expert) + shared_.before[expert];
        SYMMETRA_ROLLED
        for (uint32_t earlier = 0; earlier < i; earlier += 4) {
          const auto experts = platform::load_shared<Words<4>>(shared_.experts + earlier);
          SYMMETRA_UNROLL
          for (uint32_t j = 0; j < 4; ++j) place += earlier + j < i && experts.word[j] == expert;
        }
        places.pairs[uint64_t{source_} * args_.max_tokens * args_.top_k + first + i] = place;
      }
      shared_.pair_places[i] = place;
      if (!kByRank) shared_.places[row * shared_.stride + i - row * args_.top_k] = place;
    }
  }

  /// First load of a packet of a row.
  SYMMETRA_DEVICE void look(Incoming<Protocol, 1>& incoming, uint32_t token, uint32_t i) const {
    const uint64_t unit = uint64_t{source_} * args_.max_tokens + token;
    incoming.look(0, packets_.row(args_.rank, unit, rows_packets_), i, source_);
  }

  /// Waits for the rows of the block's tokens, and writes them to their places. `ahead`: the packet that was loaded
  /// before, if any.
  SYMMETRA_DEVICE void write_rows(const Incoming<Protocol, 1>& ahead) {
    const uint32_t packets = static_cast<uint32_t>(args_.row_bytes / 16);
    Incoming<Protocol, 1> incoming = ahead;
    bool looked = ahead.has(0);
    SYMMETRA_ROLLED
    for (uint32_t row = 0, i = platform::thread();; i += platform::threads(), looked = false) {
      for (; i >= packets; i -= packets) ++row;
      if (row >= rows_) break;
      const RowTarget target = targets_.of(i);
      const uint32_t number = targets_.number(i);
      bool here = false;
      SYMMETRA_ROLLED
      for (uint32_t k = 0; k < shared_.stride; k += 4) {
        const auto places = platform::load_shared<Words<4>>(shared_.places + row * shared_.stride + k);
        if ((places.word[0] & places.word[1] & places.word[2] & places.word[3]) == kNone) continue;
        if (!here) {
          if (!looked) look(incoming, first_ + row, i);
          if (!incoming.await(waiter_, packets_.epoch())) break;
          here = true;
        }
        if (target.whole) {
          SYMMETRA_UNROLL
          for (uint32_t j = 0; j < 4; ++j) {
            uint8_t* const into = target.base + uint64_t{places.word[j]} * target.stride + uint64_t{number} * 16;
            if (places.word[j] != kNone) platform::store(into, incoming.data(0));
          }
        } else if (target.base != nullptr) {
          SYMMETRA_ROLLED
          for (uint32_t j = k; j < k + 4; ++j) {
            const uint32_t place = shared_.places[row * shared_.stride + j];
            if (place != kNone) targets_.put(i, place, shared_.experts[row * args_.top_k + j], incoming.data(0));
          }
        }
      }
    }
  }

  /// The weight of a pair. Undefined when the wait gave up. `packet`: the packet that was loaded before.
  SYMMETRA_DEVICE float await_weight(uint32_t pair, Packet packet) const {
    if (!ByteProtocol::arrived(packet, packets_.epoch())) {
      waiter_.until(source_, [&] {
        packet = platform::load_packet(weight_packet(pair));
        return ByteProtocol::arrived(packet, packets_.epoch());
      });
    }
    const Words<2> data = ByteProtocol::decode(packet);
    return platform::f32_of(pair % 2 == 0 ? data.word[0] : data.word[1]);
  }

  /// Writes the metadata of the pairs of the block's tokens, and stores what combines need of them. The last threads
  /// begin, because the first threads have packets. `weight`: the first weight packet that this thread loaded.
  SYMMETRA_DEVICE void describe(Packet weight) const {
    const Headers headers(args_);
    const Places places(args_);
    const uint32_t first = first_ * args_.top_k, count = rows_ * args_.top_k;
    SYMMETRA_ROLLED
    for (uint32_t i = from_end(); i < count; i += platform::threads(), weight = {}) {
      const uint32_t row = row_of(i), k = i - row * args_.top_k, pair = first + i, token = first_ + row;
      uint32_t none = kNone;
      SYMMETRA_ROLLED
      for (uint32_t other = 0; other < shared_.stride; other += 4) {
        const auto row_places = platform::load_shared<Words<4>>(shared_.places + row * shared_.stride + other);
        none &= row_places.word[0] & row_places.word[1] & row_places.word[2] & row_places.word[3];
      }
      const bool comes = none != kNone;
      const uint32_t row_place = kByRank ? shared_.places[row * shared_.stride] : 0;
      if (k == 0) places.tokens[uint64_t{source_} * args_.max_tokens + token] = comes ? row_place : kNone;
      if (!comes) continue;
      const uint32_t expert = shared_.experts[i];
      const bool here = expert != kNone;
      const float value = await_weight(pair, weight);
      if (waiter_.gave_up()) return;
      if (source_ != args_.rank) {  // the sending kernel stores the whole own header
        headers.replicas(source_)[pair] = static_cast<uint16_t>(headers_.replica_of(source_, pair));
        headers.weights(source_)[pair] = value;
      }
      if (!kByRank && !here) continue;
      const uint64_t place = kByRank ? row_place : shared_.pair_places[i], at = kByRank ? place * args_.top_k + k : place;
      if (args_.into.ids != nullptr) args_.into.ids[at] = here ? static_cast<int32_t>(expert) : -1;
      if (args_.into.weights != nullptr) args_.into.weights[at] = here ? value : 0.0f;
      if (args_.into.sources != nullptr && (!kByRank || k == 0)) {
        args_.into.sources[place * 2] = source_;
        args_.into.sources[place * 2 + 1] = token;
      }
      if (kByRank && here && args_.into.index != nullptr) args_.into.index[shared_.pair_places[i]] = row_place;
    }
  }

  /// Writes the counts and offsets of the rows that this rank receives, and stores the token counts of all ranks for
  /// combines.
  SYMMETRA_DEVICE void store_counts() const {
    const ExpertState state(args_);
    SYMMETRA_ROLLED
    for (uint32_t expert = platform::thread(); expert < args_.local; expert += platform::threads()) {
      const uint32_t pairs = shared_.pairs[args_.first_replica + expert], offset = offset_of(expert);
      state.count(expert) = pairs;
      state.offset(expert) = offset;
      if (args_.counts.rows != nullptr) args_.counts.rows[expert] = pairs;
      if (args_.counts.offsets != nullptr) args_.counts.offsets[expert] = offset;
    }
    SYMMETRA_ROLLED
    for (uint32_t source = platform::thread(); source < args_.world; source += platform::threads()) {
      Headers(args_).header(source)->tokens = headers_.tokens(source);
    }
    if (platform::thread() != 0) return;
    const uint32_t end = args_.layout == kRowsPadded ? args_.local * static_cast<uint32_t>(args_.capacity) : end_;
    state.rows() = kByRank ? come_ : end;
    if (args_.counts.offsets != nullptr) args_.counts.offsets[args_.local] = end;
  }

  const ReceiveArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  ReceiveShared shared_;
  ArrivedHeaders headers_;
  RowTargets targets_;
  uint32_t source_ = 0;        ///< of the block's tokens
  uint32_t first_ = 0;         ///< the first of the block's tokens
  uint32_t rows_ = 0;          ///< number of the block's tokens
  uint32_t rows_packets_ = 0;  ///< packets of a row
  uint32_t come_ = 0;          ///< by rank: rows that this rank receives
  uint32_t end_ = 0;           ///< end of the rows of all local experts
};

/// More threads than a block has: the bound leaves a thread at most 80 registers. With 82, a dispatch of 64 tokens took 6 % longer.
constexpr uint32_t kReceiveBound = 768;
static_assert(kReceiveBound >= kMostAheadThreads);

/// Waits for the routing headers of all ranks and the rows of this rank, and writes the rows to their places. After its
/// sending kernel, this kernel starts immediately: its inputs arrive in packets or precede the sending kernel.
template <class Protocol, bool kByRank>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kReceiveBound) expert_receive(SYMMETRA_ARGS(ReceiveArgs) args) {
  receive_call(args, kOpDispatch, [&](const ExpertPackets& packets, device::Waiter& waiter) {
    Receive<Protocol, kByRank> receive(args, packets, waiter, platform::kept_shared<uint32_t>());
    if (receive.await_headers()) {
      receive.run();
      packets.scrub([&](uint32_t source) { return receive.headers().tokens(source); });
    } else if (platform::block() == platform::blocks() - 1 && platform::thread() == 0) {
      ExpertState(args).failed() = 1;
    }
  });
}

}  // namespace symmetra::kernels
