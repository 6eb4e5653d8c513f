// A reduction of strips by sentinel packets, in the region and wire format of a one-shot all-reduce: every rank sends
// each peer the strip that the peer reduces, 16 data bytes in each packet. Any memory; strips that fit their slots.
#pragma once
#include "kernels/exchange/results.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// A pair, with the strip that this rank sends the peer.
template <class Message>
struct StripPair : Pair {
  using Data = Words<4>;

  const uint8_t* strip;
  uint32_t sends;   ///< packets for the peer
  uint32_t awaits;  ///< packets from the peer
  bool own;
  Message out;

  /// A packet that the strip does not contain is zeros.
  SYMMETRA_DEVICE Data load(uint32_t tile) const { return out.has(tile + lane) ? out.load(strip, tile + lane) : Data{}; }
};

/// An empty strip takes one packet: all ranks exchange packets in every call, so that no rank begins the call after
/// next before another has ended this one.
template <class Message>
SYMMETRA_DEVICE StripPair<Message> make_strip_pair(const ExchangeArgs& args, uint32_t index, uint32_t world, uint32_t receives) {
  const Pair pair = make_pair(args, index, world);
  const uint8_t* strip = args.from[pair.peer];
  const uint64_t bytes = args.send_bytes[pair.peer];
  const auto sends = static_cast<uint32_t>(packets_of<Words<4>>(bytes));
  StripPair<Message> made{
      pair, strip, sends, receives, pair.peer == args.rank, {bytes, args.row_bytes, args.from_pitch_bytes, address_bits(strip)}};
  platform::keep(made.strip);
  platform::keep(made.sends);
  return made;
}

/// Reduces the strips of all ranks, in rank order. One thread for each packet and peer, as in a one-shot all-reduce.
template <class Protocol, uint32_t kWorld, class Message>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(1024) reduce_sentinels(SYMMETRA_ARGS(ExchangeArgs) args) {
  using Data = typename Protocol::Data;
  const uint32_t world = world_of<kWorld>(args.world), lanes_log2 = args.lanes_log2;
  const uint32_t first = platform::block() << lanes_log2;
  uint32_t step = platform::blocks() << lanes_log2;
  const Results<Data, kWorld, Message> results(args);
  uint32_t packets = static_cast<uint32_t>(packets_of<Data>(args.largest_bytes));
  uint32_t receives = static_cast<uint32_t>(packets_of<Data>(args.receive_bytes[args.rank]));
  Data* arrived = platform::shared<Data>();
  const platform::Items pairs(world << lanes_log2, [&](uint32_t t) { return make_strip_pair<Message>(args, t, world, receives); });

  platform::wait_prior();
  Call call = begin_call(args.state, args.wait);
  Data ahead{};
  pairs.each([&](const StripPair<Message>& pair) {
    if (pair.index == platform::thread() && first + pair.lane < pair.sends) ahead = pair.load(first);
  });
  platform::keep(step);
  platform::keep(packets);
  platform::keep(receives);
  platform::keep(call.epoch);
  const auto load = [&](uint32_t tile, const StripPair<Message>& pair) {
    const bool loaded = tile == first && pair.index == platform::thread();
    return Protocol::sendable(loaded ? ahead : pair.load(tile));
  };
  const Scratch<Protocol, 1, ExchangeArgs> scratch(args, world, call);
  device::Waiter waiter(args.wait, args.op, call.epoch, call.poisoned != 0);

  for (uint32_t tile = first; tile < packets; tile += step) {
    pairs.each([&](const StripPair<Message>& pair) {
      if (pair.own) return;
      if (tile + pair.lane < pair.sends && !waiter.gave_up()) scratch.send(0, pair, tile, load(tile, pair));
      scratch.clear(0, pair, tile);
    });
  }
  for (uint32_t tile = first;; platform::sync_block()) {  // all threads have read the arrived packets
    pairs.each([&](const StripPair<Message>& pair) {
      if (tile + pair.lane >= pair.awaits) return;
      arrived[pair.place] = pair.own ? load(tile, pair) : scratch.await(waiter, 0, pair, tile);
    });
    platform::sync_block();
    const bool last = tile + step >= receives;
    if (last) platform::release_next();
    results.template store<typename Protocol::Element>(tile, receives, arrived);
    if (last) break;
    tile += step;
  }
  scratch.clear_rest(pairs, packets);
  end_call(args.state, args.wait, call.epoch, receives);
}

}  // namespace symmetra::kernels
