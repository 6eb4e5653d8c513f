// The receiving half of a dispatch in packets, by source. The place of a row follows from its source and token, so a
// block needs only the pairs of its own tokens, and the token counts of all ranks.
#pragma once
#include "kernels/experts/arrived_headers.cuh"
#include "kernels/experts/targets.cuh"

namespace symmetra::kernels {

/// One receive, from the view of a block. Work that does not depend on the routing headers runs before waiting for
/// them.
template <class Protocol>
class SourceReceive {
 public:
  /// `words`: in block-shared memory, one for each rank, and two for each expert of a token.
  SYMMETRA_DEVICE SourceReceive(const ReceiveArgs& args, const ExpertPackets& packets, device::Waiter& waiter, uint32_t* words)
      : args_(args),
        packets_(packets),
        waiter_(waiter),
        targets_(args, args.into),
        experts_(words),
        weights_(words + kMostTopK),
        tokens_(words + 2 * kMostTopK) {}

  /// Tokens of a rank, after its routing header has arrived.
  SYMMETRA_DEVICE uint32_t tokens(uint32_t source) const { return tokens_[source]; }

  /// Receives the tokens of this block. The tokens of all ranks are interleaved, so a block knows its first token
  /// before it knows the token counts. Returns false on all threads when a wait gave up, or when a routing header
  /// reports an error. In the latter case all ranks find the same error, and nothing is written.
  SYMMETRA_DEVICE bool run() {
    const bool stores_counts = platform::block() == platform::blocks() - 1;
    begin(platform::block());
    // The first packet is loaded before the wait for the headers.
    Incoming<Protocol, 1> first;
    first.none(0);
    if (token_ < args_.max_tokens && platform::thread() * 16 < args_.row_bytes) look(first, platform::thread());
    listen(true);
    if (platform::sync_block_or(waiter_.gave_up() || odd_)) {
      report_wrong();
      return false;
    }
    describe();
    // The last team does this: it has no packets of the row if the block has enough threads.
    if (from_end() < platform::kTeam) {
      describe_absent();
      if (stores_counts) store_counts();
    }
    if (comes()) write_row(first);
    for (uint32_t unit = platform::block() + platform::blocks();; unit += platform::blocks()) {
      begin(unit);
      if (token_ >= args_.max_tokens || token_ >= most()) break;
      first.none(0);
      platform::sync_block();  // all threads have read what the block received
      listen(false);
      if (platform::sync_block_or(waiter_.gave_up())) return false;
      describe();
      if (comes()) write_row(first);
    }
    return true;
  }

 private:
  SYMMETRA_DEVICE uint32_t from_end() const { return platform::threads() - 1 - platform::thread(); }
  SYMMETRA_DEVICE void begin(uint32_t unit) {
    token_ = unit / args_.world;
    source_ = unit - token_ * args_.world;
  }
  SYMMETRA_DEVICE uint32_t place() const { return source_ * args_.max_tokens + token_; }
  SYMMETRA_DEVICE const Packet* control_packet(uint32_t source, uint32_t i) const { return packets_.control(args_.rank, source, i); }

  /// Waits for the experts and weights of the block's token, and if `all` for the token counts of all ranks. A sync
  /// must follow.
  SYMMETRA_DEVICE void listen(bool all) {
    const uint32_t headers = all ? args_.world : 0;
    SYMMETRA_ROLLED
    for (uint32_t i = from_end(); i < headers + args_.top_k; i += platform::threads()) {
      const bool header = i < headers;
      const uint32_t source = header ? i : source_, k = header ? 0 : i - headers, pair = token_ * args_.top_k + k;
      const Packet* const from = control_packet(source, 0);
      const bool there = !header && token_ < args_.max_tokens;
      const Packet* const pair_packet = there ? control_packet(source, packets_.pair_at(pair)) : from;
      Packet first, packet;
      uint32_t count = 0;
      waiter_.until(source, [&] {
        first = platform::load_packet(from);
        packet = platform::load_packet(pair_packet);
        if (!ByteProtocol::arrived(first, packets_.epoch())) return false;
        count = ByteProtocol::decode(first).word[0];
        return ByteProtocol::arrived(packet, packets_.epoch()) || token_ >= count;
      });
      if (waiter_.gave_up()) return;
      if (header) {
        tokens_[source] = count;
        odd_ |= count == 0 && await_word(source, kHeaderWrong) != 0;
        continue;
      }
      const Words<2> data = ByteProtocol::decode(packet);
      const uint32_t expert = data.word[0] - args_.first_replica;
      experts_[k] = token_ < count && expert < args_.local ? expert : kNone;
      weights_[k] = data.word[1];
    }
    // Lists are read four words at once.
    for (uint32_t k = args_.top_k + platform::thread(); k < (args_.top_k + 3) / 4 * 4; k += platform::threads()) experts_[k] = kNone;
  }

  /// A word of the fixed part of a rank's routing header. Undefined when the wait gave up.
  SYMMETRA_DEVICE uint32_t await_word(uint32_t source, uint32_t i) {
    waiter_.until(source, [&] { return ByteProtocol::arrived(platform::load_packet(control_packet(source, i / 2)), packets_.epoch()); });
    return packets_.word(source, i);
  }

  /// Reports the error in the routing headers, unless a wait gave up.
  SYMMETRA_DEVICE void report_wrong() {
    if (platform::sync_block_or(waiter_.gave_up()) || platform::thread() != 0) return;
    reports_headers(args_, [&](uint32_t source, uint32_t i) { return await_word(source, i); });
  }

  /// Whether the block's token has an expert here.
  SYMMETRA_DEVICE bool comes() const {
    uint32_t none = kNone;
    SYMMETRA_ROLLED
    for (uint32_t k = 0; k < args_.top_k; k += 4) {
      const auto four = platform::load_shared<Words<4>>(experts_ + k);
      none &= four.word[0] & four.word[1] & four.word[2] & four.word[3];
    }
    return none != kNone;
  }

  /// First load of a packet of the row.
  SYMMETRA_DEVICE void look(Incoming<Protocol, 1>& incoming, uint32_t i) const {
    incoming.look(0, packets_.row(args_.rank, place(), row_packets<Protocol>(args_.row_bytes)), i, source_);
  }

  /// Tokens of the rank with the most tokens.
  SYMMETRA_DEVICE uint32_t most() const {
    uint32_t most = 0;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) most = tokens(source) > most ? tokens(source) : most;
    return most;
  }

  /// Waits for the row, and writes it to its place. `incoming`: the packet that was loaded before, if any.
  SYMMETRA_DEVICE void write_row(Incoming<Protocol, 1>& incoming) {
    const uint32_t packets = static_cast<uint32_t>(args_.row_bytes / 16);
    SYMMETRA_ROLLED
    for (uint32_t i = platform::thread(); i < packets; i += platform::threads(), incoming.none(0)) {
      if (!incoming.has(0)) look(incoming, i);
      if (!incoming.await(waiter_, packets_.epoch())) return;
      const RowTarget target = targets_.of(i);
      if (target.whole) {
        platform::store(target.base + uint64_t{place()} * target.stride + uint64_t{targets_.number(i)} * 16, incoming.data(0));
      } else if (target.base != nullptr) {
        targets_.put(i, place(), 0, incoming.data(0));
      }
    }
  }

  /// Writes the metadata of the row, and stores what combines need of it. The last threads begin, because the first
  /// threads have packets.
  SYMMETRA_DEVICE void describe() const {
    if (token_ >= tokens(source_)) return;
    const bool any = comes();
    SYMMETRA_ROLLED
    for (uint32_t k = from_end(); k < args_.top_k; k += platform::threads()) {
      const uint32_t expert = experts_[k];
      const uint64_t at = uint64_t{place()} * args_.top_k + k;
      if (args_.into.ids != nullptr) args_.into.ids[at] = expert != kNone ? static_cast<int32_t>(expert) : -1;
      if (args_.into.weights != nullptr) args_.into.weights[at] = expert != kNone ? platform::f32_of(weights_[k]) : 0.0f;
      if (k != 0) continue;
      Places(args_).tokens[place()] = any ? place() : kNone;
      if (any) RowOutputs(args_, args_.into).source(place(), source_, token_);
    }
  }

  /// For padding slots (token index >= token count), writes expert id -1 and weight 0. The last team of each block
  /// calls it.
  SYMMETRA_DEVICE void describe_absent() const {
    if (args_.into.ids == nullptr && args_.into.weights == nullptr) return;
    const RowOutputs outputs(args_, args_.into);
    const uint32_t rows = args_.max_tokens * args_.top_k, step = platform::blocks() * platform::kTeam;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) {
      uint32_t i = tokens(source) * args_.top_k + platform::block() * platform::kTeam + from_end();
      for (; i < rows; i += step) outputs.no_expert(source * args_.max_tokens, i);
    }
  }

  /// Stores the token counts of all ranks for combines, and that the dispatch has not failed. The last team calls it.
  SYMMETRA_DEVICE void store_counts() const {
    const ExpertState state(args_);
    for (uint32_t source = from_end(); source < args_.world; source += platform::kTeam) {
      Headers(args_).header(source)->tokens = tokens(source);
    }
    if (from_end() != 0) return;
    state.failed() = 0;
    state.rows() = static_cast<uint32_t>(args_.capacity);
  }

  const ReceiveArgs& args_;
  const ExpertPackets& packets_;
  device::Waiter& waiter_;
  RowTargets targets_;
  uint32_t* experts_;  ///< of the block's token: the local expert, or kNone
  uint32_t* weights_;  ///< as bits
  uint32_t* tokens_;   ///< of each rank
  uint32_t source_ = 0;
  uint32_t token_ = 0;
  bool odd_ = false;  ///< this thread found an error in a header
};

/// Waits for the rows of this rank, and writes them to the places of their sources and tokens. After its sending
/// kernel, this kernel starts immediately: its inputs arrive in packets or precede the sending kernel.
template <class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(kMostAheadThreads) expert_receive_by_source(SYMMETRA_ARGS(ReceiveArgs) args) {
  receive_call(args, kOpDispatch, [&](const ExpertPackets& packets, device::Waiter& waiter) {
    SourceReceive<Protocol> receive(args, packets, waiter, platform::kept_shared<uint32_t>());
    if (receive.run()) {
      packets.scrub([&](uint32_t source) { return receive.tokens(source); });
    } else if (platform::block() == platform::blocks() - 1 && platform::thread() == 0) {
      ExpertState(args).failed() = 1;
    }
  });
}

}  // namespace symmetra::kernels
