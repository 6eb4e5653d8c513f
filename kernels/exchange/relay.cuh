// A broadcast through scratch in two hops, so that the root's link carries the message once and not once for each rank.
// Every rank but the root owns a share of the message. The root sends it there as LL packets, and the owner forwards
// each packet to the other owners as soon as it arrives.
#pragma once
#include "kernels/call.cuh"
#include "kernels/exchange/strip.cuh"
#include "kernels/packet.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// The division of a message: owner n is the n-th rank after the root. Shares in scratch start at lines of memory,
/// which links carry whole. No share is empty, because ranks must exchange packets in every call; packets after the end
/// of the message hold zeros.
struct Owners {
  uint32_t root;
  uint32_t world;
  uint32_t count;
  uint32_t share;    ///< packets per owner; the last may have fewer
  uint32_t packets;  ///< packets of all owners

  SYMMETRA_DEVICE explicit Owners(const ExchangeArgs& args) : root(args.root), world(args.world), count(args.world - 1) {
    const auto all = static_cast<uint32_t>(packets_of<Words<2>>(args.largest_bytes));
    share = (all + count * kRelayLine - 1) / (count * kRelayLine) * kRelayLine;
    const uint32_t least = share * (count - 1) + 1;
    packets = all < least ? least : all;
  }
  SYMMETRA_DEVICE uint32_t number(uint32_t rank) const { return rank > root ? rank - root - 1 : rank + count - root; }
  SYMMETRA_DEVICE uint32_t rank(uint32_t number) const { return number + root + 1 < world ? number + root + 1 : number + root + 1 - world; }
  SYMMETRA_DEVICE uint32_t begin(uint32_t number) const { return number * share; }
  SYMMETRA_DEVICE uint32_t size(uint32_t number) const { return number + 1 < count ? share : packets - number * share; }
};

/// A lane and an owner, with derived values: what one thread handles of a tile. Packets lie in scratch in message
/// order, except that the packets to the root lie there by owner.
struct Leg {
  uint32_t index;   ///< of the item
  uint32_t peer;    ///< the owner
  uint32_t sends;   ///< packets for the peer: from the root, of the peer's share; from an owner, of its own share
  uint32_t awaits;  ///< packets from the peer
  uint32_t out;     ///< where the sent packets start, at this lane
  uint32_t in;      ///< where the awaited packets start, at this lane
  Packet* to;       ///< the peer's scratch, where the sent packets start
};

SYMMETRA_DEVICE Leg make_leg(const ExchangeArgs& args, const Owners& owners, uint32_t index) {
  const uint32_t lane = index & ((1u << args.lanes_log2) - 1), turn = index >> args.lanes_log2;
  const bool root = args.rank == args.root;
  const uint32_t mine = root ? 0 : owners.number(args.rank);
  const uint32_t theirs = turn + mine < owners.count ? turn + mine : turn + mine - owners.count;
  const uint32_t given = root ? theirs : mine, sends = owners.size(given), awaits = root ? 1 : owners.size(theirs);
  Leg leg{};
  leg.index = index;
  leg.peer = owners.rank(theirs);
  leg.sends = lane < sends ? sends - lane : 0;
  leg.awaits = lane < awaits && leg.peer != args.rank ? awaits - lane : 0;
  leg.out = owners.begin(given) + lane;
  leg.in = root ? theirs : owners.begin(theirs) + lane;
  leg.to = reinterpret_cast<Packet*>(args.peers[leg.peer]) + leg.out;
  platform::keep(leg.sends);
  platform::keep(leg.awaits);
  platform::keep(leg.out);
  platform::keep(leg.in);
  platform::keep(leg.to);
  return leg;
}

/// The work of a block's threads. Scratch is [buffer][packets of a message].
template <class Protocol, class Message>
class RelayedCall {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE RelayedCall(const ExchangeArgs& args, const Owners& owners)
      : args_(args),
        owners_(owners),
        root_(args.rank == args.root),
        base_(root_ ? const_cast<uint8_t*>(args.from[args.root]) : args.into[args.root]),
        message_(args.largest_bytes, 0, 0, address_bits(base_)),
        first_(platform::block() << args.lanes_log2),
        step_(platform::blocks() << args.lanes_log2),
        end_(owners.share),
        own_(reinterpret_cast<Packet*>(args.peers[args.rank])) {
    platform::keep(base_);
    platform::keep(first_);
    platform::keep(own_);
  }

  /// Loads the packet that this thread of the root sends first, before the epoch of the call is known.
  template <class Legs>
  SYMMETRA_DEVICE Data ahead(const Legs& legs) const {
    Data data{};
    legs.each([&](const Leg& leg) {
      if (root_ && leg.index == platform::thread() && first_ < leg.sends) data = load(leg.out + first_);
    });
    return data;
  }

  /// Sends the root a start flag, the only packet that the root waits for: this rank has begun the call.
  SYMMETRA_DEVICE void greet(uint32_t epoch, const device::Waiter& waiter) const {
    if (root_ || platform::block() != 0 || platform::thread() != 0 || waiter.gave_up()) return;
    Packet* to = reinterpret_cast<Packet*>(args_.peers[args_.root]) + (now(epoch) + owners_.number(args_.rank));
    platform::store_packet(to, Protocol::encode(Data{}, epoch));
  }

  /// The first hop on the root; on an owner, the first hop's arrival and the second hop's sends. Waits only for the
  /// root, which does not wait here.
  template <class Legs>
  SYMMETRA_DEVICE void send(const Legs& legs, uint32_t epoch, const Data& ahead, device::Waiter& waiter) const {
    tiles([&](uint32_t tile) {
      legs.each([&](const Leg& leg) {
        if (tile >= leg.sends || waiter.gave_up()) return;
        const uint32_t packet = leg.out + tile;
        Data data = ahead;
        if (!root_) {
          data = await(epoch, args_.root, packet, waiter);
          if (waiter.gave_up()) return;
        } else if (tile != first_ || leg.index != platform::thread()) {
          data = load(packet);
        }
        if (leg.peer == args_.rank) {
          store(packet, data);
        } else {
          platform::store_packet(leg.to + (now(epoch) + tile), Protocol::encode(data, epoch));
        }
      });
    });
  }

  /// Receives the second hop on an owner; on the root, receives the owners' start flags.
  template <class Legs>
  SYMMETRA_DEVICE void receive(const Legs& legs, uint32_t epoch, device::Waiter& waiter) const {
    tiles([&](uint32_t tile) {
      legs.each([&](const Leg& leg) {
        if (tile >= leg.awaits) return;
        const Data data = await(epoch, leg.peer, leg.in + tile, waiter);
        if (!root_ && !waiter.gave_up()) store(leg.in + tile, data);
      });
    });
  }

  /// Tags repeat after 2^32 calls, and a packet that has not been written since would look new. So one thread of each
  /// call clears the packets that Slots::scrub would clear and that this call does not use. No peer writes them now.
  SYMMETRA_DEVICE void scrub(uint32_t epoch) const {
    if (platform::block() != platform::blocks() - 1 || platform::thread() != platform::threads() - 1) return;
    const uint32_t slot = static_cast<uint32_t>(args_.slot_packets), used = root_ ? owners_.count : owners_.packets;
    uint32_t i = (epoch / 2) % slot;
    for (uint32_t source = 0; source < owners_.world; ++source, i += slot) {
      if (i >= used) platform::store_packet(own_ + (now(epoch) + i), Packet{});
    }
  }

 private:
  template <class Body>
  SYMMETRA_DEVICE void tiles(Body body) const {
    for (uint32_t tile = first_; tile < end_; tile += step_) body(tile);
  }

  /// Start of this call's buffer.
  SYMMETRA_DEVICE uint64_t now(uint32_t epoch) const { return Protocol::buffer(epoch) * (args_.slot_packets * args_.world); }

  /// Waits for a packet. Undefined when the wait gave up.
  SYMMETRA_DEVICE Data await(uint32_t epoch, uint32_t peer, uint32_t i, device::Waiter& waiter) const {
    const Packet* from = own_ + (now(epoch) + i);
    Packet packet;
    waiter.until(peer, [&] {
      packet = platform::load_packet(from);
      return Protocol::arrived(packet, epoch);
    });
    return Protocol::decode(packet);
  }

  SYMMETRA_DEVICE Data load(uint32_t packet) const { return message_.has(packet) ? message_.load(base_, packet) : Data{}; }
  SYMMETRA_DEVICE void store(uint32_t packet, const Data& data) const {
    if (message_.has(packet)) message_.store(base_, packet, data);
  }

  const ExchangeArgs& args_;
  const Owners& owners_;
  bool root_;
  uint8_t* base_;
  Message message_;
  uint32_t first_;
  uint32_t step_;
  uint32_t end_;
  Packet* own_;
};

template <class Protocol, class Message>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) relay_packets(SYMMETRA_ARGS(ExchangeArgs) args) {
  const Owners owners(args);
  const RelayedCall<Protocol, Message> relayed(args, owners);
  const platform::Items legs(owners.count << args.lanes_log2, [&](uint32_t index) { return make_leg(args, owners, index); });

  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  const auto ahead = relayed.ahead(legs);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  relayed.greet(call.epoch, waiter);
  relayed.send(legs, call.epoch, ahead, waiter);
  relayed.scrub(call.epoch);
  relayed.receive(legs, call.epoch, waiter);
  platform::release_next();
  platform::sync_block();  // all threads have read the state
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
