// The scratch region of a packet protocol: [buffer][hop][source][slot_packets]. Offsets depend on the size of a slot,
// not on the size of a call, so a small call after a large one cannot meet its packets.
#pragma once
#include "kernels/call.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// A packet and a peer: the work of one thread in a tile. Every rank starts with itself and proceeds in rank order, so
/// that ranks do not all send to the same rank at once.
struct Pair {
  uint32_t index;  ///< of the item
  uint32_t peer;
  uint32_t lane;
  uint32_t place;  ///< index among the arrived packets: lanes of rank 0, lanes of rank 1...
  Packet* to;      ///< this rank's slot in the memory of `peer`, at this lane
  Packet* from;    ///< the slot of `peer` in the memory of this rank, at this lane
};

/// The peer of an item.
SYMMETRA_DEVICE uint32_t peer_of(uint32_t index, uint32_t lanes_log2, uint32_t rank, uint32_t world) {
  const uint32_t peer = (index >> lanes_log2) + rank;
  return peer < world ? peer : peer - world;
}

template <class Args>
SYMMETRA_DEVICE Pair make_pair(const Args& args, uint32_t index, uint32_t world) {
  const uint32_t slot = static_cast<uint32_t>(args.slot_packets);
  Pair pair{};
  pair.index = index;
  pair.peer = peer_of(index, args.lanes_log2, args.rank, world);
  pair.lane = index & ((1u << args.lanes_log2) - 1);
  pair.place = (pair.peer << args.lanes_log2) + pair.lane;
  pair.to = reinterpret_cast<Packet*>(args.peers[pair.peer]) + (args.rank * slot + pair.lane);
  pair.from = reinterpret_cast<Packet*>(args.peers[args.rank]) + (pair.peer * slot + pair.lane);
  platform::keep(pair.to);
  platform::keep(pair.from);
  return pair;
}

template <class Protocol, uint32_t kHops, class Args = AllReduceArgs>
class Scratch {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE Scratch(const Args& args, uint32_t world, const Call& call)
      : args_(args), world_(world), slot_(static_cast<uint32_t>(args.slot_packets)), call_(call) {}

  /// The slots of a hop in the memory of `rank`.
  SYMMETRA_DEVICE Packet* sources(uint32_t hop, uint32_t rank) const { return reinterpret_cast<Packet*>(args_.peers[rank]) + now(hop); }

  /// The slot of this rank in its own memory, in the first hop.
  SYMMETRA_DEVICE Packet* own_slot() const { return sources(0, args_.rank) + args_.rank * slot_; }

  /// Writes packet `tile` + lane of this rank to the peer's memory.
  SYMMETRA_DEVICE void send(uint32_t hop, const Pair& pair, uint32_t tile, const Data& data) const {
    platform::store_packet(pair.to + (now(hop) + tile), Protocol::encode(data, call_.epoch));
  }

  /// Waits for packet `tile` + lane of the peer. Undefined when the wait gave up.
  SYMMETRA_DEVICE Data await(device::Waiter& waiter, uint32_t hop, const Pair& pair, uint32_t tile) const {
    const Packet* from = pair.from + (now(hop) + tile);
    Packet packet;
    waiter.until(pair.peer, [&] {
      packet = platform::load_packet(from);
      return Protocol::arrived(packet, call_.epoch);
    });
    return Protocol::decode(packet);
  }

  /// Sends a packet to `peer`, at a place of this rank's slot.
  SYMMETRA_DEVICE void send(uint32_t hop, uint32_t peer, uint32_t place, const Data& data) const {
    Packet* const to = reinterpret_cast<Packet*>(args_.peers[peer]) + (now(hop) + args_.rank * slot_ + place);
    platform::store_packet(to, Protocol::encode(data, call_.epoch));
  }

  /// Waits for the packets at a place of the slots of all ranks with `comes(peer)` among the kCount ranks from `first` on.
  /// All are polled at once. Undefined when the wait gave up.
  template <uint32_t kCount, class Comes>
  SYMMETRA_DEVICE void await_each(device::Waiter& waiter, uint32_t hop, uint32_t place, uint32_t first, Comes comes,
                                  Data (&into)[kCount]) const {
    const Packet* const from = sources(hop, args_.rank) + place;
    Packet packets[kCount];
    if constexpr (kCount > 1) {
      await_some(waiter, from, first, comes, packets);
    } else if (comes(first)) {
      await_all(waiter, from, first, first, comes, packets);
    }
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      if (comes(first + i)) into[i] = Protocol::decode(packets[i]);
    }
  }

  /// Waits for the packets of all peers at a place of their slots, and reduces them and this rank's, in rank order. All
  /// are polled at once if the world size is fixed. kFew: few packets are in transit. Undefined when the wait gave up.
  template <uint32_t kWorld, bool kFew = true>
  SYMMETRA_DEVICE Data await_sum(device::Waiter& waiter, uint32_t hop, uint32_t place, const Data& own, const Reduction& reduction) const {
    const Packet* const from = reinterpret_cast<const Packet*>(args_.peers[args_.rank]) + (now(hop) + place);
    constexpr uint32_t kAtOnce = kWorld == 0 ? 1 : kWorld;
    Packet packets[kAtOnce];
    typename Protocol::Element::template Accumulator<4> total(reduction);
    for (uint32_t first = 0; first < world_; first += kAtOnce) {
      const auto comes = [&](uint32_t peer) { return peer != args_.rank; };
      if constexpr (kWorld == 2) {
        Packet one[1];
        await_all(waiter, from, 1 - args_.rank, 0, comes, one);
        packets[0] = packets[1] = one[0];
      } else if constexpr (kAtOnce == 1 || !kFew) {
        await_some(waiter, from, first, comes, packets);
      } else {
        await_all(waiter, from, first, comes(first) ? first : first + 1, comes, packets);
      }
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const Data data = first + i == args_.rank ? own : Protocol::decode(packets[i]);
        if (first + i == 0) {
          total.start(data);
        } else {
          total.add(data);
        }
      }
    }
    return total.round();
  }

  /// Clears the packets of all peers at a place of their slots, if the previous call used the place.
  SYMMETRA_DEVICE void clear(uint32_t hop, uint32_t place) const {
    if (place >= call_.previous) return;
    Packet* const own = reinterpret_cast<Packet*>(args_.peers[args_.rank]) + (before(hop) + place);
    for (uint32_t peer = 0; peer < world_; ++peer) {
      if (peer != args_.rank) platform::store_packet(own + peer * slot_, Protocol::empty());
    }
  }

  /// Clears packet `tile` + lane of the peer if the previous call used it. Call it between sending and awaiting, where
  /// it costs nothing.
  SYMMETRA_DEVICE void clear(uint32_t hop, const Pair& pair, uint32_t tile) const {
    if constexpr (Protocol::kClears) {
      if (tile + pair.lane < call_.previous) platform::store_packet(pair.from + (before(hop) + tile), Protocol::empty());
    }
  }

  /// Clears the packets that the previous call used and this call, of `packets` packets per source, does not.
  template <class Pairs>
  SYMMETRA_DEVICE void clear_rest(const Pairs& pairs, uint32_t packets) const {
    if constexpr (Protocol::kClears) {
      if (call_.previous <= packets) return;
      const uint32_t lanes = 1u << args_.lanes_log2, step = platform::blocks() << args_.lanes_log2;
      uint32_t tile = (packets & ~(lanes - 1)) + (platform::block() << args_.lanes_log2);
      for (; tile < call_.previous; tile += step) {
        pairs.each([&](const Pair& pair) {
          if (pair.peer == args_.rank || tile + pair.lane < packets) return;
          for (uint32_t hop = 0; hop < kHops; ++hop) clear(hop, pair, tile);
        });
      }
    }
  }

  /// LL: tags repeat after 2^32 calls, and a packet that has not been written since would look new. So one thread of
  /// each call clears one packet of each source that this call does not use. After slot_packets calls of either parity
  /// each packet has been used or cleared. No peer writes it now: peers do so in call k + 2 at the earliest, after they
  /// have received our packets of call k + 1, which we sent after call k had ended. `used(hop, source)`: packets of
  /// this call.
  template <class Used>
  SYMMETRA_DEVICE void scrub(Used used) const {
    if constexpr (!Protocol::kClears) {
      if (platform::block() != 0 || platform::thread() != platform::threads() - 1) return;
      const uint32_t i = (call_.epoch / 2) % slot_;
      for (uint32_t hop = 0; hop < kHops; ++hop) {
        for (uint32_t source = 0; source < world_; ++source) {
          Packet* own = reinterpret_cast<Packet*>(args_.peers[args_.rank]) + (now(hop) + source * slot_ + i);
          if (i >= used(hop, source)) platform::store_packet(own, Packet{});
        }
      }
    }
  }

 private:
  /// Waits for the packets at `from`, a place of the first slot, of all ranks with `comes(peer)` among the kCount ranks
  /// from `first` on. With few packets in transit the last is found a whole poll late, so the loop computes no
  /// addresses and has no branch but its end: for a rank that sends no packet, the packet of `other` is loaded again.
  /// Undefined when the wait gave up.
  template <uint32_t kCount, class Comes>
  SYMMETRA_DEVICE void await_all(device::Waiter& waiter, const Packet* from, uint32_t first, uint32_t other, Comes comes,
                                 Packet (&packets)[kCount]) const {
    uint32_t at[kCount];
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kCount; ++i) {
      at[i] = (comes(first + i) ? first + i : other) * slot_;
      platform::keep(at[i]);
    }
    const auto arrived = [&](uint32_t i) { return Protocol::arrived(packets[i], call_.epoch); };
    const auto missing = [&] {
      uint32_t peer = args_.rank;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) peer = comes(first + i) && !arrived(i) ? first + i : peer;
      return peer;
    };
    waiter.until_any(missing, [&] {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) packets[i] = platform::load_packet(from + at[i]);
      bool all = true;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) all &= arrived(i);
      return all;
    });
  }
  /// `await_all` that loads only packets that are sent: with many packets in transit, polls delay them.
  template <uint32_t kCount, class Comes>
  SYMMETRA_DEVICE void await_some(device::Waiter& waiter, const Packet* from, uint32_t first, Comes comes,
                                  Packet (&packets)[kCount]) const {
    uint32_t missing = args_.rank;
    waiter.until(missing, [&] {
      bool all = true;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        if (comes(first + i)) packets[i] = platform::load_packet(from + (first + i) * slot_);
      }
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < kCount; ++i) {
        if (!comes(first + i) || Protocol::arrived(packets[i], call_.epoch)) continue;
        all = false;
        missing = first + i;
      }
      return all;
    });
  }

  /// Start of a hop in the buffer of this call, and in that of the previous call.
  SYMMETRA_DEVICE uint32_t now(uint32_t hop) const { return (Protocol::buffer(call_.epoch) * kHops + hop) * world_ * slot_; }
  SYMMETRA_DEVICE uint32_t before(uint32_t hop) const {
    return (Protocol::buffer(call_.epoch + Protocol::kBuffers - 1) * kHops + hop) * world_ * slot_;
  }

  const Args& args_;
  uint32_t world_;
  uint32_t slot_;
  Call call_;
};

}  // namespace symmetra::kernels
