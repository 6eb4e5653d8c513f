// A stream of LL packets from one rank to another: a ring of packets in the receiver's memory, which both ranks pass at
// positions that only grow and wrap. Every lap of the ring has another tag, and every lap writes every packet, so a packet
// of an earlier lap never looks new, no packet is cleared, and any bits may be sent. A stream carries the headers of all
// messages of a lane, and the data of short ones: a receiver polls the packets, so no count crosses the link before the data.
#pragma once
#include "kernels/exchange/strip.cuh"
#include "kernels/packet.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

/// The progress of a way of a lane in a launch. In block-shared memory.
struct PairTask {
  uint32_t count;     ///< pieces, or packets of a stream, that have passed so far, in all launches
  uint32_t seen;      ///< the count of the other rank when the launch began
  uint32_t end;       ///< the current message
  uint32_t left;      ///< its remaining pieces, or the packets of the messages that a stream moves at once; 0: no further message
  uint32_t piece;     ///< in a channel, the number of the next piece in the message
  uint32_t messages;  ///< in a stream, the number of messages that it moves at once
};
static_assert(sizeof(PairTask) == kPairTaskBytes);

class PairStream {
 public:
  using Data = Words<2>;
  using Protocol = LL<Data>;

  /// `ring`: in the memory of the receiver.
  SYMMETRA_DEVICE PairStream(const PairsArgs& args, uint32_t stream, uint32_t peer, uint8_t* ring)
      : args_(args), stream_(stream), peer_(peer), ring_(reinterpret_cast<Packet*>(ring)) {}

  /// Begins the messages from `task.end` on that the stream moves at once: as many as leave a quarter of the ring free, or one.
  SYMMETRA_DEVICE static void begin(const PairsArgs& args, uint32_t stream, uint32_t behind, bool single, PairTask& task) {
    task.left = 0;
    task.messages = 0;
    for (uint32_t number = task.end; number < behind; ++number) {
      const uint32_t packets = Portion(args.end[number], stream).packets();
      if (task.left != 0 && (single || task.left + packets > args.stream_packets / 4 * 3)) return;
      task.left += packets;
      ++task.messages;
    }
  }

  /// Whether the packet at a position has arrived.
  SYMMETRA_DEVICE bool arrived(uint32_t position) const { return Protocol::arrived(platform::load_packet(at(position)), lap(position)); }

  /// Moves the messages that a task has begun; called by all threads of the block, of which teams move a message each. Returns
  /// false on the thread that found another header, which it has reported.
  SYMMETRA_DEVICE bool move(const PairTask& task, bool sends, device::Waiter& waiter) const {
    const uint32_t most = platform::threads() / kTeam, teams = most == 0 ? 1 : task.messages < most ? task.messages : most;
    const uint32_t size = platform::threads() / teams, team = platform::thread() / size;
    uint32_t position = task.count;
    for (uint32_t i = 0, turn = 0; i < task.messages; ++i, turn = turn + 1 == teams ? 0 : turn + 1) {
      const PairEnd& end = args_.end[task.end + i];
      const Portion portion(end, stream_);
      if (turn == team) {
        const Members members{platform::thread() - team * size, size};
        if (sends) {
          send(end, position, portion, members);
        } else if (!receive(end, position, portion, members, waiter)) {
          return false;
        }
        if (waiter.gave_up()) return true;
      }
      position += portion.packets();
    }
    return true;
  }

 private:
  /// Fewest threads of a team.
  static constexpr uint32_t kTeam = 64;
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 4 ? platform::kLoadsInFlight : 4;

  /// The packets of a message in a stream: in the first stream a header, then data packets [first, first + data) of the message.
  struct Portion {
    uint32_t head, first = 0, data = 0;

    SYMMETRA_DEVICE Portion(const PairEnd& end, uint32_t stream) : head(stream == 0 ? 1 : 0) {
      if (end.pieces != 0) return;
      const auto all = static_cast<uint32_t>((end.bytes + sizeof(Data) - 1) / sizeof(Data));
      first = stream * end.piece_packets;
      if (first < all) data = all - first < end.piece_packets ? all - first : end.piece_packets;
    }
    SYMMETRA_DEVICE uint32_t packets() const { return head + data; }
  };
  /// A thread of a team, and the number of threads.
  struct Members {
    uint32_t thread, threads;
  };

  SYMMETRA_DEVICE void send(const PairEnd& end, uint32_t position, const Portion& portion, const Members& team) const {
    const Strip<Data> strip(end.bytes, 0, 0, address_bits(end.address));
    for (uint32_t i = team.thread; i < portion.packets(); i += team.threads) {
      const Data data = i < portion.head ? header(end) : strip.load(end.address, portion.first + i - portion.head);
      platform::store_packet(at(position + i), Protocol::encode(data, lap(position + i)));
    }
  }

  SYMMETRA_DEVICE bool receive(const PairEnd& end, uint32_t position, const Portion& portion, const Members& team,
                               device::Waiter& waiter) const {
    const Strip<Data> strip(end.bytes, 0, 0, address_bits(end.address));
    for (uint32_t tile = team.thread; tile < portion.packets(); tile += kUnroll * team.threads) {
      Packet packet[kUnroll];
      const auto each = [&](auto body) {
        SYMMETRA_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t i = tile + u * team.threads;
          if (i < portion.packets()) body(packet[u], i);
        }
      };
      each([&](Packet& one, uint32_t i) { one = platform::load_packet(at(position + i)); });
      bool same = true;
      each([&](Packet& one, uint32_t i) {
        const bool got = Protocol::arrived(one, lap(position + i)) || waiter.until(peer_, [&] {
          one = platform::load_packet(at(position + i));
          return Protocol::arrived(one, lap(position + i));
        });
        if (!got || !same) return;
        const Data data = Protocol::decode(one);
        if (i >= portion.head) return strip.store(end.address, portion.first + i - portion.head, data);
        same = is_header(end, data, position);
      });
      if (!same) return false;
      if (waiter.gave_up()) return true;
    }
    return true;
  }

  SYMMETRA_DEVICE Packet* at(uint32_t position) const { return ring_ + (position & (args_.stream_packets - 1)); }
  SYMMETRA_DEVICE uint32_t lap(uint32_t position) const { return position / args_.stream_packets; }

  SYMMETRA_DEVICE Data header(const PairEnd& end) const {
    return {{static_cast<uint32_t>(end.bytes), static_cast<uint32_t>(end.bytes >> 32) | args_.op << 24}};
  }
  SYMMETRA_DEVICE bool is_header(const PairEnd& end, const Data& data, uint32_t position) const {
    const Data ours = header(end);
    if (data.word[0] == ours.word[0] && data.word[1] == ours.word[1]) return true;
    const uint64_t bytes = uint64_t{data.word[1] & 0xFFFFFFu} << 32 | data.word[0];
    device::report(args_.wait, kStatusMismatch, args_.op, peer_, position, bytes, end.bytes);
    return false;
  }

  const PairsArgs& args_;
  uint32_t stream_;
  uint32_t peer_;
  Packet* ring_;
};

}  // namespace symmetra::kernels
