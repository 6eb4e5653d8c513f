// An exchange of strips by escaped packets, in the sentinel region of a one-shot all-reduce: any bits, and nearly all
// of a packet is data. Any memory; strips that fit their slots.
#pragma once
#include "kernels/exchange/escape.cuh"
#include "kernels/exchange/strip.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// A lane and a peer, with derived values: what one thread handles of a tile, which is a unit a lane.
template <class Message>
struct UnitPair : Pair {
  const uint8_t* strip;  ///< data for the peer
  uint8_t* into;         ///< place of the peer's data
  uint32_t sends;        ///< packets for the peer
  uint32_t awaits;       ///< packets from the peer
  bool own;
  Message out;
  Message in;

  SYMMETRA_DEVICE EscapedUnit load(uint32_t unit) const {
    EscapedUnit loaded{};
    each([&](uint32_t i) {
      const uint32_t packet = EscapedUnit::packet(unit, i);
      if (out.has(packet)) loaded.data[i] = out.load(strip, packet);
    });
    return loaded;
  }
  SYMMETRA_DEVICE void store(uint32_t unit, const EscapedUnit& data) const {
    each([&](uint32_t i) {
      const uint32_t packet = EscapedUnit::packet(unit, i);
      if (in.has(packet)) in.store(into, packet, data.data[i]);
    });
  }

 private:
  /// Packets of strips that are not whole need long code, which exists once.
  template <class Body>
  SYMMETRA_DEVICE static void each(Body body) {
    if constexpr (Message::kShort) {
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < EscapedUnit::kPackets; ++i) body(i);
    } else {
      SYMMETRA_ROLLED
      for (uint32_t i = 0; i < EscapedUnit::kPackets; ++i) body(i);
    }
  }
};

/// An empty strip takes one packet: all ranks exchange packets in every call, so that no rank begins the call after
/// next before another has ended this one.
template <class Message>
SYMMETRA_DEVICE UnitPair<Message> make_unit_pair(const ExchangeArgs& args, uint32_t index) {
  const Pair pair = make_pair(args, index, args.world);
  const uint8_t* strip = args.from[pair.peer];
  uint8_t* into = args.into[pair.peer];
  const uint64_t out = args.send_bytes[pair.peer], in = args.receive_bytes[pair.peer];
  UnitPair<Message> made;
  static_cast<Pair&>(made) = pair;
  made.strip = strip;
  made.into = into;
  made.sends = static_cast<uint32_t>(packets_of<EscapedUnit::Data>(out));
  made.awaits = static_cast<uint32_t>(packets_of<EscapedUnit::Data>(in));
  made.own = pair.peer == args.rank;
  made.out = Message(out, args.row_bytes, args.from_pitch_bytes, address_bits(strip));
  made.in = Message(in, args.row_bytes, args.into_pitch_bytes, address_bits(into));
  platform::keep(made.strip);
  platform::keep(made.into);
  platform::keep(made.sends);
  platform::keep(made.awaits);
  return made;
}

/// The slots of a call.
class EscapedSlots {
 public:
  using Wire = EscapedUnit::Wire;

  SYMMETRA_DEVICE EscapedSlots(const ExchangeArgs& args, const Scratch<Wire, 1, ExchangeArgs>& scratch)
      : args_(args), scratch_(scratch), own_(scratch.sources(0, args.rank)) {}

  /// Writes a unit of a strip of `sends` packets into the memory of the peer.
  SYMMETRA_DEVICE void send(const Pair& pair, uint32_t sends, uint32_t unit, EscapedUnit data) const {
    Packet* slot = scratch_.sources(0, pair.peer) + args_.rank * args_.slot_packets;
    const uint32_t word = data.escape();
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < EscapedUnit::kPackets; ++i) {
      if (EscapedUnit::packet(unit, i) < sends) {
        platform::store_packet(slot + EscapedUnit::place(unit, i), Wire::encode(data.data[i], 0));
      }
    }
    platform::store_relaxed(reinterpret_cast<uint32_t*>(slot) + EscapedUnit::word(unit), word ^ Wire::kMask);
  }

  /// Waits for a unit of a strip of `awaits` packets from the peer. Undefined when the wait gave up.
  SYMMETRA_DEVICE EscapedUnit await(device::Waiter& waiter, const Pair& pair, uint32_t awaits, uint32_t unit) const {
    const Packet* slot = own_ + pair.peer * args_.slot_packets;
    EscapedUnit arrived{};
    uint32_t word = 0;
    waiter.until(pair.peer, [&] {
      Packet packets[EscapedUnit::kPackets];
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < EscapedUnit::kPackets; ++i) {
        if (EscapedUnit::packet(unit, i) < awaits) packets[i] = platform::load_packet(slot + EscapedUnit::place(unit, i));
      }
      word = platform::load_relaxed(reinterpret_cast<const uint32_t*>(slot) + EscapedUnit::word(unit)) ^ Wire::kMask;
      bool all = word != Wire::kMissing;
      SYMMETRA_UNROLL
      for (uint32_t i = 0; i < EscapedUnit::kPackets; ++i) {
        if (EscapedUnit::packet(unit, i) >= awaits) continue;
        all &= Wire::arrived(packets[i], 0);
        arrived.data[i] = Wire::decode(packets[i]);
      }
      return all;
    });
    arrived.restore(word);
    return arrived;
  }

 private:
  const ExchangeArgs& args_;
  const Scratch<Wire, 1, ExchangeArgs>& scratch_;
  const Packet* own_;
};

template <class Message>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) exchange_escaped(SYMMETRA_ARGS(ExchangeArgs) args) {
  const uint32_t lanes_log2 = args.lanes_log2, first = platform::block() << lanes_log2;
  uint32_t step = platform::blocks() << lanes_log2;
  uint32_t groups = EscapedUnit::groups(static_cast<uint32_t>(packets_of<EscapedUnit::Data>(args.largest_bytes)));
  const platform::Items pairs(args.world << lanes_log2, [&](uint32_t index) { return make_unit_pair<Message>(args, index); });
  // In the first packet of a unit the unit begins.
  const auto begins = [](uint32_t unit, uint32_t packets) { return EscapedUnit::packet(unit, 0) < packets; };

  platform::wait_prior();
  Call call = begin_call(args.state, args.wait);
  EscapedUnit ahead{};
  pairs.each([&](const UnitPair<Message>& pair) {
    if (pair.index == platform::thread()) ahead = pair.load(first + pair.lane);
  });
  platform::keep(step);
  platform::keep(groups);
  platform::keep(call.epoch);
  const uint32_t units = groups * EscapedUnit::kUnits;
  const Scratch<EscapedUnit::Wire, 1, ExchangeArgs> scratch(args, args.world, call);
  const EscapedSlots slots(args, scratch);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);

  for (uint32_t tile = first; tile < units; tile += step) {
    pairs.each([&](const UnitPair<Message>& pair) {
      const uint32_t unit = tile + pair.lane;
      if (pair.own || waiter.gave_up() || !begins(unit, pair.sends)) return;
      const bool loaded = tile == first && pair.index == platform::thread();
      slots.send(pair, pair.sends, unit, loaded ? ahead : pair.load(unit));
    });
  }
  scratch.clear_rest(pairs, 0);
  for (uint32_t tile = first; tile < units; tile += step) {
    pairs.each([&](const UnitPair<Message>& pair) {
      const uint32_t unit = tile + pair.lane;
      if (!begins(unit, pair.awaits)) return;
      if (pair.own && pair.strip == pair.into) return;
      const EscapedUnit data = pair.own ? pair.load(unit) : slots.await(waiter, pair, pair.awaits, unit);
      if (pair.own || !waiter.gave_up()) pair.store(unit, data);
    });
  }
  platform::release_next();
  platform::sync_block();  // all threads have read the state
  end_call(args.state, args.wait, call.epoch, groups * kEscapedGroupPackets);
}

}  // namespace symmetra::kernels
