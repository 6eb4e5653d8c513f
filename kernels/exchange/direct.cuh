// Zero-copy exchange between two barriers: each rank writes its strips directly into the outputs of the others. For
// memory that peers can address.
#pragma once
#include "kernels/barrier.cuh"
#include "kernels/exchange/plan.cuh"
#include "kernels/scratch.cuh"

namespace symmetra::kernels {

/// Copies of strips, shared among the blocks of the launch. Tiles of all peers alternate, so that every block and every
/// link has work.
class Copies {
 public:
  using Data = Words<4>;
  /// Packets that a thread reads before it writes the first.
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 4 ? platform::kLoadsInFlight : 4;

  SYMMETRA_DEVICE explicit Copies(const ExchangeArgs& args) : args_(args) {}

  SYMMETRA_DEVICE void run() const {
    const uint64_t tile_packets = uint64_t{kUnroll} << args_.lanes_log2;
    const uint64_t tiles = (packets_of<Data>(largest_bytes(args_)) + tile_packets - 1) / tile_packets * args_.world;
    for (uint64_t tile = platform::block(); tile < tiles; tile += platform::blocks()) {
      const uint32_t peer = static_cast<uint32_t>((args_.rank + tile) % args_.world);
      const uint64_t start = tile / args_.world * tile_packets;
      platform::each(1u << args_.lanes_log2, [&](uint32_t lane) { copy(peer, start + lane); });
    }
  }

 private:
  SYMMETRA_DEVICE void copy(uint32_t peer, uint64_t packet) const {
    const bool own = peer == args_.rank;
    const uint8_t* from = args_.from[peer];
    uint8_t* into = own ? args_.into[peer] : theirs(args_, peer);
    const uint64_t bytes = args_.send_bytes[peer];
    const uintptr_t all = address_bits(from) | address_bits(into);
    const Strip<Data> out(bytes, args_.row_bytes, args_.from_pitch_bytes, all), in(bytes, args_.row_bytes, args_.into_pitch_bytes, all);
    if (from == into) return;
    const uint64_t step = uint64_t{1} << args_.lanes_log2;
    Data data[kUnroll];
    SYMMETRA_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (out.has(packet + u * step)) data[u] = out.load(from, packet + u * step);
    }
    SYMMETRA_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (in.has(packet + u * step)) in.store(into, packet + u * step, data[u]);
    }
  }

  const ExchangeArgs& args_;
};

/// A broadcast in two overlapping hops: each rank but the root reads its share from the root and writes it into the
/// memory of all others, so that the root's link carries the message once and not once per rank. With two ranks each
/// moves half, because the root writes faster than the other reads.
class Relay {
 public:
  using Data = Words<4>;

  SYMMETRA_DEVICE explicit Relay(const ExchangeArgs& args) : args_(args), strip_(args.largest_bytes, 0, 0, addresses(args)) {}

  SYMMETRA_DEVICE void run() const {
    const bool two = args_.world == 2;
    if (!two && args_.rank == args_.root) return;
    const uint32_t ranks = two ? 2 : args_.world - 1, place = two || args_.rank < args_.root ? args_.rank : args_.rank - 1;
    const uint64_t all = packets_of<Data>(args_.largest_bytes), share = (all + ranks - 1) / ranks;
    const uint64_t begin = place * share, end = begin + share < all ? begin + share : all;
    const uint64_t step = uint64_t{platform::blocks()} << args_.lanes_log2;
    for (uint64_t tile = begin + (uint64_t{platform::block()} << args_.lanes_log2); tile < end; tile += step) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t lane) {
        if (tile + lane < end && strip_.has(tile + lane)) hand_on(tile + lane);
      });
    }
  }

 private:
  SYMMETRA_DEVICE static uintptr_t addresses(const ExchangeArgs& args) {
    uintptr_t all = 0;
    for (uint32_t peer = 0; peer < args.world; ++peer) all |= address_bits(theirs(args, peer));
    return all;
  }

  SYMMETRA_DEVICE void hand_on(uint64_t packet) const {
    const Data data = strip_.load(theirs(args_, args_.root), packet);
    for (uint32_t k = 0; k < args_.world; ++k) {
      const uint32_t peer = args_.rank + k < args_.world ? args_.rank + k : args_.rank + k - args_.world;
      if (peer != args_.root) strip_.store(theirs(args_, peer), packet, data);
    }
  }

  const ExchangeArgs& args_;
  Strip<Data> strip_;
};

template <class Work>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) exchange_direct(SYMMETRA_ARGS(ExchangeArgs) args) {
  platform::wait_prior();
  if (skipped(args, true)) return;
  const Call call = begin_call(args.state, args.wait);
  const Work work(args);
  BlockBarrier barrier(args, args.world, call, args.op);
  if (barrier.enter()) work.run();
  platform::release_next();
  barrier.leave();
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
