// A one-round exchange through scratch, for the usual small case: strips that fit their slots and are whole packets in
// aligned memory. A thread computes its addresses before it waits for the previous kernel. It has the wire format of
// exchange_packets, so ranks may differ in which of the two they run.
#pragma once
#include "kernels/exchange/packets.cuh"

namespace symmetra::kernels {

/// A packet and a peer, with derived values: what one thread handles of a tile.
template <class Data>
struct Place {
  uint32_t index;  ///< of the item
  uint32_t peer;
  uint32_t lane;
  uint32_t sends;      ///< packets for the peer
  uint32_t receives;   ///< packets from the peer
  const Data* out;     ///< data for the peer, at this lane
  Data* into;          ///< place of the peer's data, at this lane
  Packet* to;          ///< in the first buffer of the peer, at this lane
  const Packet* from;  ///< in the first buffer of this rank, at this lane
};

template <class Data>
SYMMETRA_DEVICE Place<Data> make_place(const ExchangeArgs& args, uint32_t index) {
  Place<Data> place{};
  place.index = index;
  place.peer = peer_of(index, args.lanes_log2, args.rank, args.world);
  place.lane = index & ((1u << args.lanes_log2) - 1);
  place.sends = static_cast<uint32_t>(args.send_bytes[place.peer] / sizeof(Data));
  place.receives = static_cast<uint32_t>(args.receive_bytes[place.peer] / sizeof(Data));
  place.out = reinterpret_cast<const Data*>(args.from[place.peer]) + place.lane;
  place.into = reinterpret_cast<Data*>(args.into[place.peer]) + place.lane;
  place.to = reinterpret_cast<Packet*>(args.peers[place.peer]) + args.rank * args.slot_packets + place.lane;
  place.from = reinterpret_cast<const Packet*>(args.peers[args.rank]) + place.peer * args.slot_packets + place.lane;
  platform::keep(place.sends);
  platform::keep(place.receives);
  platform::keep(place.out);
  platform::keep(place.into);
  platform::keep(place.to);
  platform::keep(place.from);
  return place;
}

/// The tiles of a block, and the loops over them.
template <class Protocol>
class Once {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE explicit Once(const ExchangeArgs& args)
      : args_(args),
        first_(platform::block() << args.lanes_log2),
        step_(platform::blocks() << args.lanes_log2),
        packets_(static_cast<uint32_t>((args.largest_bytes + sizeof(Data) - 1) / sizeof(Data))),
        takes_part_(first_ < args.slot_packets) {
    platform::keep(first_);
    platform::keep(step_);
    platform::keep(packets_);
  }

  /// Calls `body(tile)` for each tile of this block. The first tile is always visited, because each block exchanges
  /// packets with all its twins in it.
  template <class Body>
  SYMMETRA_DEVICE void tiles(Body body) const {
    for (uint32_t tile = first_; takes_part_ && (tile == first_ || tile < packets_); tile += step_) body(tile);
  }

  /// A block's first packet is sent even when the strip does not contain it.
  SYMMETRA_DEVICE bool always(uint32_t tile, const Place<Data>& place) const { return tile == first_ && place.lane == 0; }

  /// Loads the packet that this thread sends first, before the epoch of the call is known.
  template <class Places>
  SYMMETRA_DEVICE Data ahead(const Places& places) const {
    Data data{};
    places.each([&](const Place<Data>& place) {
      if (place.index == platform::thread() && first_ + place.lane < place.sends) data = platform::load<Data>(place.out + first_);
    });
    return data;
  }

  template <class Places>
  SYMMETRA_DEVICE void send(const Places& places, const Slots<Protocol>& slots, uint64_t buffer, const Data& ahead,
                            const device::Waiter& waiter) const {
    tiles([&](uint32_t tile) {
      places.each([&](const Place<Data>& place) {
        const bool present = tile + place.lane < place.sends;
        if (place.peer == args_.rank || waiter.gave_up() || !(present || always(tile, place))) return;
        Data data = ahead;
        if (tile != first_ || place.index != platform::thread()) data = present ? platform::load<Data>(place.out + tile) : Data{};
        slots.send(place.to + buffer + tile, data);
      });
    });
  }

 private:
  const ExchangeArgs& args_;
  uint32_t first_;
  uint32_t step_;
  uint32_t packets_;
  bool takes_part_;
};

template <class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) exchange_once(SYMMETRA_ARGS(ExchangeArgs) args) {
  using Data = typename Protocol::Data;
  const Once<Protocol> once(args);
  const platform::Items places(args.world << args.lanes_log2, [&](uint32_t index) { return make_place<Data>(args, index); });

  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  const Data ahead = once.ahead(places);
  const Slots<Protocol> slots(args, call.epoch);
  const uint64_t buffer = slots.buffer();
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  once.send(places, slots, buffer, ahead, waiter);
  uint32_t stale = slots.stale();
  platform::keep(stale);
  once.tiles([&](uint32_t tile) {
    places.each([&](const Place<Data>& place) {
      const bool present = tile + place.lane < place.receives;
      if (place.peer == args.rank) {
        if (present && place.out != place.into) platform::store(place.into + tile, platform::load<Data>(place.out + tile));
      } else if (present || once.always(tile, place)) {
        const Data data = slots.await(waiter, place.peer, place.from + buffer + tile);
        if (present && !waiter.gave_up()) platform::store(place.into + tile, data);
      }
    });
  });
  platform::release_next();
  platform::sync_block();  // all threads have read the arrived packets
  slots.scrub(stale);
  end_call(args.state, args.wait, call.epoch, 0);
}

/// Reduces the strips of all ranks, in rank order.
template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) reduce_once(SYMMETRA_ARGS(ExchangeArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t lanes_log2 = args.lanes_log2, receives = static_cast<uint32_t>(args.receive_bytes[args.rank] / sizeof(Data));
  auto* arrived = platform::shared<Data>();
  auto* into = reinterpret_cast<Data*>(args.into[args.rank]);
  const Reduction reduction{args.reduction, args.world};
  const Once<Protocol> once(args);
  const platform::Items places(args.world << lanes_log2, [&](uint32_t index) { return make_place<Data>(args, index); });

  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  const Data ahead = once.ahead(places);
  const Slots<Protocol> slots(args, call.epoch);
  const uint64_t buffer = slots.buffer();
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  once.send(places, slots, buffer, ahead, waiter);
  uint32_t stale = slots.stale();
  platform::keep(stale);
  once.tiles([&](uint32_t tile) {
    places.each([&](const Place<Data>& place) {
      const bool present = tile + place.lane < receives;
      Data* slot = arrived + (place.peer << lanes_log2) + place.lane;
      if (place.peer == args.rank) {
        if (present) *slot = platform::load<Data>(place.out + tile);
      } else if (present || once.always(tile, place)) {
        *slot = slots.await(waiter, place.peer, place.from + buffer + tile);
      }
    });
    const bool gave_up = platform::sync_block_or(waiter.gave_up());
    platform::each(1u << lanes_log2, [&](uint32_t lane) {
      if (gave_up || tile + lane >= receives) return;
      platform::store(into + tile + lane, reduce_ranks<typename Protocol::Element, kWorld>(arrived + lane, lanes_log2, reduction));
    });
    platform::sync_block();  // all threads have read the arrived packets
  });
  platform::release_next();
  platform::sync_block();  // a block without a tile has had no sync yet
  slots.scrub(stale);
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
