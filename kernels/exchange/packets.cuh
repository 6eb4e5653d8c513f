// An exchange through scratch: every strip is sent as LL packets into slots of the receiver's memory, and copied from
// there to its place. Any memory, any counts. A strip larger than a slot takes several rounds of one launch, with one
// epoch for each round.
#pragma once
#include "kernels/call.cuh"
#include "kernels/exchange/plan.cuh"
#include "kernels/exchange/results.cuh"
#include "kernels/packet.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// The slots of one round: [buffer][source][slot_packets] in the memory of every rank.
template <class Protocol>
class Slots {
 public:
  SYMMETRA_DEVICE Slots(const ExchangeArgs& args, uint32_t epoch) : args_(args), epoch_(epoch) {}

  SYMMETRA_DEVICE void send(uint32_t peer, uint64_t i, const typename Protocol::Data& data) const { send(at(peer, args_.rank, i), data); }
  SYMMETRA_DEVICE void send(Packet* to, const typename Protocol::Data& data) const {
    platform::store_packet(to, Protocol::encode(data, epoch_));
  }

  /// Waits for a packet. Undefined when the wait gave up.
  SYMMETRA_DEVICE typename Protocol::Data await(device::Waiter& waiter, uint32_t peer, uint64_t i) const {
    return await(waiter, peer, at(args_.rank, peer, i));
  }
  SYMMETRA_DEVICE typename Protocol::Data await(device::Waiter& waiter, uint32_t peer, const Packet* from) const {
    Packet packet;
    waiter.until(peer, [&] {
      packet = platform::load_packet(from);
      return Protocol::arrived(packet, epoch_);
    });
    return Protocol::decode(packet);
  }

  /// Tags repeat after 2^32 rounds, and a packet that has not been written since would look new. So each round clears
  /// one packet of each source, in turn. The block that owns the packet has read it. Peers write it again only after
  /// they have received that block's packets of the next round, which no thread of the block begins before this is
  /// done.
  SYMMETRA_DEVICE void scrub(uint32_t stale) const {
    if (stale == kNotOurs) return;
    SYMMETRA_ROLLED
    for (uint32_t source = 0; source < args_.world; ++source) platform::store_packet(at(args_.rank, source, stale), Packet{});
  }

  /// The packet of each source that this thread clears in this round, if any. The divisions may overlap with waiting.
  SYMMETRA_DEVICE uint32_t stale() const {
    const uint32_t i = (epoch_ / 2) % static_cast<uint32_t>(args_.slot_packets);
    return (i >> args_.lanes_log2) % platform::blocks() == platform::block() && platform::thread() == 0 ? i : kNotOurs;
  }

  /// Packets from the start of a region to the buffer of the round.
  SYMMETRA_DEVICE uint64_t buffer() const { return uint64_t{Protocol::buffer(epoch_)} * args_.world * args_.slot_packets; }

 private:
  static constexpr uint32_t kNotOurs = 0xFFFFFFFF;  // no packet of a slot

  SYMMETRA_DEVICE Packet* at(uint32_t owner, uint32_t source, uint64_t i) const {
    return reinterpret_cast<Packet*>(args_.peers[owner]) + buffer() + source * args_.slot_packets + i;
  }

  const ExchangeArgs& args_;
  uint32_t epoch_;
};

/// The work of a block's threads in one round.
template <class Protocol>
class Round {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE Round(const ExchangeArgs& args, const Slots<Protocol>& slots, uint64_t start, uint64_t end, device::Waiter& waiter)
      : args_(args), slots_(slots), start_(start), end_(end), waiter_(waiter) {}

  /// Calls `body(peer, slot index, strip index)` for the packets of this block. The block's first packet is always
  /// visited, even if the strip does not contain it, so that each block receives from all its twins in every round, and
  /// no block runs two rounds before another.
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    const uint32_t lanes_log2 = args_.lanes_log2;
    tiles([&](uint64_t tile, bool first) {
      platform::each(args_.world << lanes_log2, [&](uint32_t item) {
        const uint32_t lane = item & ((1u << lanes_log2) - 1);
        const bool always = first && lane == 0;
        if (always || start_ + tile + lane < end_) body(peer_of(item, lanes_log2, args_.rank, args_.world), tile + lane, always);
      });
    });
  }

  SYMMETRA_DEVICE void send() const {
    each([&](uint32_t peer, uint64_t i, bool always) {
      if (peer == args_.rank || waiter_.gave_up()) return;
      const Strip<Data> out = outgoing(peer);
      if (always || out.has(start_ + i)) slots_.send(peer, i, out.load(args_.from[peer], start_ + i));
    });
  }

  SYMMETRA_DEVICE void receive() const {
    each([&](uint32_t peer, uint64_t i, bool always) {
      const Strip<Data> in = incoming(peer);
      if (peer == args_.rank) {
        if (args_.from[peer] != args_.into[peer] && in.has(start_ + i)) in.store(args_.into[peer], start_ + i, own(start_ + i));
        return;
      }
      if (!always && !in.has(start_ + i)) return;
      const Data data = slots_.await(waiter_, peer, i);
      if (!waiter_.gave_up()) in.store(args_.into[peer], start_ + i, data);
    });
  }

  /// Receives from all ranks and reduces, in rank order. `arrived`: shared memory for one packet of each rank and lane.
  template <class Element, uint32_t kWorld>
  SYMMETRA_DEVICE void reduce(Data* arrived) const {
    const uint32_t lanes_log2 = args_.lanes_log2, rank = args_.rank;
    const Results<Data, kWorld, Strip<Data>> results(args_);
    tiles([&](uint64_t tile, bool first) {
      platform::each(args_.world << lanes_log2, [&](uint32_t item) {
        const uint32_t lane = item & ((1u << lanes_log2) - 1), peer = peer_of(item, lanes_log2, rank, args_.world);
        const bool present = start_ + tile + lane < end_ && results.has(start_ + tile + lane);
        Data* place = arrived + (peer << lanes_log2) + lane;
        if (peer == rank) {
          if (present) *place = own(start_ + tile + lane);
        } else if (present || (first && lane == 0)) {
          *place = slots_.await(waiter_, peer, tile + lane);
        }
      });
      platform::sync_block();
      results.template store<Element>(start_ + tile, end_, arrived);
      platform::sync_block();  // all threads have read the arrived packets
    });
  }

 private:
  template <class Body>
  SYMMETRA_DEVICE void tiles(Body body) const {
    const uint64_t first = uint64_t{platform::block()} << args_.lanes_log2, step = uint64_t{platform::blocks()} << args_.lanes_log2;
    for (uint64_t tile = first; tile == first || start_ + tile < end_; tile += step) body(tile, tile == first);
  }

  SYMMETRA_DEVICE Strip<Data> outgoing(uint32_t peer) const {
    return Strip<Data>(args_.send_bytes[peer], args_.row_bytes, args_.from_pitch_bytes, address_bits(args_.from[peer]));
  }
  SYMMETRA_DEVICE Strip<Data> incoming(uint32_t peer) const {
    return Strip<Data>(args_.receive_bytes[peer], args_.row_bytes, args_.into_pitch_bytes, address_bits(args_.into[peer]));
  }
  /// A packet of this rank's own strip.
  SYMMETRA_DEVICE Data own(uint64_t packet) const { return outgoing(args_.rank).load(args_.from[args_.rank], packet); }

  const ExchangeArgs& args_;
  const Slots<Protocol>& slots_;
  uint64_t start_;
  uint64_t end_;
  device::Waiter& waiter_;
};

/// The epoch that is `rounds` rounds later.
SYMMETRA_DEVICE uint32_t epoch_after(uint32_t epoch, uint64_t rounds) { return static_cast<uint32_t>((epoch + rounds) % kEpochModulus); }

/// Runs the rounds of a launch; `receive(round)` writes the arrived packets to their places.
template <class Protocol, class Receive>
SYMMETRA_DEVICE void exchange_rounds(const ExchangeArgs& args, Receive receive) {
  const Call call = begin_call(args.state, args.wait);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);
  const uint64_t packets = packets_of<typename Protocol::Data>(largest_bytes(args));
  const uint64_t rounds = (packets + args.slot_packets - 1) / args.slot_packets;
  const bool takes_part = uint64_t{platform::block()} << args.lanes_log2 < args.slot_packets;
  for (uint64_t k = 0; k < rounds; ++k) {
    const uint64_t start = k * args.slot_packets, end = start + args.slot_packets;
    const Slots<Protocol> slots(args, epoch_after(call.epoch, k));
    const Round<Protocol> round(args, slots, start, end < packets ? end : packets, waiter);
    if (takes_part) {
      round.send();
      receive(round);
    }
    // All threads have read the arrived packets. No thread continues after one gave up.
    if (platform::sync_block_or(waiter.gave_up())) break;
    slots.scrub(slots.stale());
    platform::sync_block();  // once one thread sends in the next round, a peer may write packets that another thread
                             // still clears
  }
  platform::release_next();
  end_call(args.state, args.wait, epoch_after(call.epoch, rounds - 1), 0);
}

template <class Protocol>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) exchange_packets(SYMMETRA_ARGS(ExchangeArgs) args) {
  platform::wait_prior();
  if (skipped(args, false)) return;
  exchange_rounds<Protocol>(args, [](const Round<Protocol>& round) { round.receive(); });
}

/// Reduces the strips of all ranks, in rank order.
template <class Protocol, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) reduce_packets(SYMMETRA_ARGS(ExchangeArgs) args) {
  platform::wait_prior();
  auto* arrived = platform::shared<typename Protocol::Data>();
  exchange_rounds<Protocol>(args,
                            [&](const Round<Protocol>& round) { round.template reduce<typename Protocol::Element, kWorld>(arrived); });
}

}  // namespace symmetra::kernels
