// Dispatch in packets that prove their own arrival, for few tokens: no barrier, no all-gather. A sending kernel does
// not wait for peers, and a receiving kernel waits for sending kernels only. A row is sent once to each rank that has
// an expert of the token, to the slot of its source and token, so no rank needs a count beforehand.
//
// Buffers rotate with period 2F, where F is the number of dispatches that may be between their two halves (`buffers` /
// 2). A rank starts call k + 2F only after its receive of call k + F, which needs data from every rank. So every rank
// has started call k + F, and the kernel that received call k, and cleared its packets, has ended on every rank. The
// buffer may be reused.
#pragma once
#include "kernels/call.cuh"
#include "kernels/experts/rows.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// Words of a routing header before the replicas of its pairs.
constexpr uint32_t kHeaderWords = sizeof(RoutingHeader) / 4;
/// The index of RoutingHeader::wrong among these words.
constexpr uint32_t kHeaderWrong = 6;

/// A receiving kernel with at most this many blocks leaves multiprocessors free for any sending kernel, even while the
/// next kernel of its stream also waits: half of the 132 multiprocessors of an H100.
constexpr uint32_t kFewBlocks = 64;

/// Protocols of rows: sixteen bytes of data in a packet, where words that mean "not arrived" are replaced; or eight
/// bytes, bit for bit.
using RowProtocol = Sentinel<F32>;
using ByteProtocol = LL<I64>;

/// The packets of one call.
class ExpertPackets {
 public:
  SYMMETRA_DEVICE ExpertPackets(const ExpertArgs& args, const ExpertPacketArea& area, uint32_t epoch)
      : args_(args), area_(area), epoch_(epoch), start_(epoch % area.buffers * area.buffer_bytes) {}

  SYMMETRA_DEVICE uint32_t epoch() const { return epoch_; }
  /// A control packet that `source` sends to `rank`.
  SYMMETRA_DEVICE Packet* control(uint32_t rank, uint32_t source, uint32_t i) const {
    return at(rank, area_.control_offset) + uint64_t{source} * area_.control_packets + i;
  }
  /// The packets of row or part `number` in the memory of `rank`, `packets` packets for each row.
  SYMMETRA_DEVICE Packet* row(uint32_t rank, uint64_t number, uint32_t packets) const {
    return at(rank, area_.data_offset) + number * packets;
  }

  /// A word of the routing header from `source`, once it has arrived.
  SYMMETRA_DEVICE uint32_t word(uint32_t source, uint32_t i) const {
    return static_cast<uint32_t>(platform::load_relaxed(&control(args_.rank, source, i / 2)->half[i % 2]));
  }
  /// The end of the replicas of `tokens` tokens, in packets. The packets of a header are its fixed part, the replicas
  /// of four pairs in each packet, and the weights of two pairs in each packet.
  SYMMETRA_DEVICE uint32_t replicas_end(uint32_t tokens) const { return kHeaderWords / 2 + (tokens * args_.top_k + 3) / 4; }
  /// The first packet of weights. It follows the capacity for replicas, so a weight is found without the number of
  /// tokens.
  SYMMETRA_DEVICE uint32_t weights_at() const { return replicas_end(args_.max_tokens); }
  /// By source: the packet of a header that contains the replica of a pair and its weight.
  SYMMETRA_DEVICE uint32_t pair_at(uint32_t pair) const { return kHeaderWords / 2 + pair; }
  /// Whether packet `i` is sent in a header of `tokens` tokens.
  SYMMETRA_DEVICE bool is_sent(uint32_t i, uint32_t tokens) const {
    if (args_.layout == kRowsBySource) return i < pair_at(tokens * args_.top_k);
    return i < replicas_end(tokens) || (i >= weights_at() && i < weights_at() + (tokens * args_.top_k + 1) / 2);
  }

  /// Tags repeat after 2^32 calls, and a packet that has not been written since would look new. So every 16th call of a
  /// buffer empties one packet of each header, in turn, if the call does not use that packet. `tokens(source)`: the
  /// number of tokens of a rank.
  template <class Tokens>
  SYMMETRA_DEVICE void scrub(Tokens tokens) const {
    constexpr uint32_t kRarely = 16;
    if (platform::block() != platform::blocks() - 1 || platform::thread() != 0) return;
    const uint32_t turn = epoch_ / area_.buffers;
    if (turn % kRarely != 0) return;
    const uint32_t i = turn / kRarely % area_.control_packets;
    for (uint32_t source = 0; source < args_.world; ++source) {
      if (!is_sent(i, tokens(source))) platform::store_packet(control(args_.rank, source, i), Packet{});
    }
  }

 private:
  SYMMETRA_DEVICE Packet* at(uint32_t rank, uint64_t offset) const {
    return reinterpret_cast<Packet*>(area_.regions[rank] + offset + start_);
  }

  const ExpertArgs& args_;
  const ExpertPacketArea& area_;
  uint32_t epoch_;
  uint64_t start_;
};

/// The first and last steps of all receiving kernels. `op`: kOp*, for the status. `body(packets, waiter)` waits for
/// packets. After its sending kernel, such a kernel starts immediately: its inputs arrive in packets or precede the
/// sending kernel.
template <class Args, class Body>
SYMMETRA_DEVICE void receive_call(const Args& args, uint32_t op, Body body) {
  if (args.follows == 0) platform::wait_prior();
  // With few blocks, the next kernel may start while these blocks wait. The next kernel then occupies multiprocessors
  // that many blocks would need.
  const bool few = platform::blocks() <= kFewBlocks;
  if (few) platform::release_next();
  const Call call = begin_call(args.calls, args.wait);
  const ExpertPackets packets(args, args.packets, call.epoch);
  device::Waiter waiter(args.wait, op, call.epoch, call.poisoned != 0);
  body(packets, waiter);
  if (args.follows != 0) platform::wait_prior();
  if (!few) platform::release_next();
  platform::sync_block();  // all threads have read the state
  end_call(args.calls, args.wait, call.epoch, 0);
}

/// Packets of a staged row.
template <class Protocol>
SYMMETRA_DEVICE uint32_t row_packets(uint64_t row_bytes) {
  return static_cast<uint32_t>(row_bytes / sizeof(typename Protocol::Data));
}

/// Sends sixteen bytes of a row. `quiet`: the replacement for a four-byte word that means "not arrived".
template <class Protocol>
SYMMETRA_DEVICE void send_bytes(Packet* row, uint32_t i, Words<4> data, uint32_t quiet, uint32_t epoch) {
  if constexpr (Protocol::kClears) {
    SYMMETRA_UNROLL
    for (uint32_t word = 0; word < 4; ++word) data.word[word] = data.word[word] == Protocol::kMissing ? quiet : data.word[word];
    platform::store_packet(row + i, Protocol::encode(data, epoch));
  } else {
    platform::store_packet(row + 2 * i, Protocol::encode({{data.word[0], data.word[1]}}, epoch));
    platform::store_packet(row + 2 * i + 1, Protocol::encode({{data.word[2], data.word[3]}}, epoch));
  }
}

/// Sixteen bytes of each of several rows that are in transit to this rank.
template <class Protocol, uint32_t kCount>
class Incoming {
 public:
  /// First load of packet `i` of row `number`, which comes from `rank`. All packets are loaded before any of them is
  /// waited for.
  SYMMETRA_DEVICE void look(uint32_t number, Packet* row, uint32_t i, uint32_t rank) {
    from_[number] = row + kPackets * i;
    ranks_[number] = rank;
    load(number);
  }
  /// Marks row `number` as absent.
  SYMMETRA_DEVICE void none(uint32_t number) { ranks_[number] = kNone; }
  SYMMETRA_DEVICE bool has(uint32_t number) const { return ranks_[number] != kNone; }

  /// Waits for all packets, and clears them. Returns false when the wait gave up.
  SYMMETRA_DEVICE bool await(device::Waiter& waiter, uint32_t epoch) {
    uint32_t peer = 0;
    const bool all = waiter.until(peer, [&] {
      bool there = true;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        if (!has(i) || arrived(i, epoch)) continue;
        there = false;
        peer = ranks_[i];
        load(i);
      }
      return there;
    });
    if constexpr (Protocol::kClears) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        if (all && has(i)) platform::store_packet(from_[i], Protocol::empty());
      }
    }
    return all;
  }
  SYMMETRA_DEVICE Words<4> data(uint32_t number) const {
    if constexpr (Protocol::kClears) {
      return Protocol::decode(packets_[number][0]);
    } else {
      const Words<2> low = Protocol::decode(packets_[number][0]), high = Protocol::decode(packets_[number][1]);
      return {{low.word[0], low.word[1], high.word[0], high.word[1]}};
    }
  }

 private:
  static constexpr uint32_t kPackets = 16 / sizeof(typename Protocol::Data);

  SYMMETRA_DEVICE void load(uint32_t number) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kPackets; ++i) packets_[number][i] = platform::load_packet(from_[number] + i);
  }
  SYMMETRA_DEVICE bool arrived(uint32_t number, uint32_t epoch) const {
    bool all = true;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kPackets; ++i) all &= Protocol::arrived(packets_[number][i], epoch);
    return all;
  }

  Packet* from_[kCount];
  Packet packets_[kCount][kPackets];
  uint32_t ranks_[kCount];
};

}  // namespace symmetra::kernels
