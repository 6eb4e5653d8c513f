// Zero-copy reduce-scatter and reduce: each rank reads its part of all inputs and reduces it in rank order. This runs
// between the two barriers of exchange_direct or, for parts that copy engines have copied, in a kernel that does not
// wait.
#pragma once
#include "kernels/exchange/plan.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// In place works: the thread that overwrites a packet of an input has read it, and no other rank reads it.
template <class Element, uint32_t kWorld, class Sources = OfPeers>
class Pulled {
 public:
  using Data = Words<4>;
  static constexpr uint32_t kUnroll = kWorld == 0 || kWorld > platform::kLoadsInFlight ? 1 : platform::kLoadsInFlight / kWorld;

  SYMMETRA_DEVICE explicit Pulled(const ExchangeArgs& args)
      : args_(args),
        into_(args.into[args.rank]),
        in_(bytes(), args.row_bytes, args.from_pitch_bytes, addresses()),
        out_(bytes(), args.row_bytes, args.into_pitch_bytes, addresses()) {}

  SYMMETRA_DEVICE void run() const {
    uint64_t rest = 0;
    if constexpr (kWorld != 0) {
      const uint8_t* from[kWorld];
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kWorld; ++k) from[k] = Sources::at(args_, k);
      for (uint64_t tile = first(); tile < in_.whole(); tile += kUnroll * step()) reduce_whole(from, tile);
      rest = in_.whole();
    }
    // Short and unaligned packets, and any world size.
    for (uint64_t tile = rest + first(); in_.has(tile); tile += step()) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t lane) { reduce_any(tile + lane); });
    }
  }

 private:
  /// A block's first tile, and the distance to its next.
  SYMMETRA_DEVICE uint64_t first() const { return uint64_t{platform::block()} << args_.lanes_log2; }
  SYMMETRA_DEVICE uint64_t step() const { return uint64_t{platform::blocks()} << args_.lanes_log2; }
  SYMMETRA_DEVICE uint64_t bytes() const { return args_.receive_bytes[args_.rank]; }
  SYMMETRA_DEVICE uintptr_t addresses() const {
    uintptr_t all = address_bits(into_);
    for (uint32_t peer = 0; peer < args_.world; ++peer) all |= address_bits(Sources::at(args_, peer));
    return all;
  }

  SYMMETRA_DEVICE void reduce_whole(const uint8_t* const* from, uint64_t tile) const {
    platform::each(1u << args_.lanes_log2, [&](uint32_t lane) {
      Data data[kUnroll][kWorld == 0 ? 1 : kWorld];
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint64_t packet = tile + u * step() + lane;
        if (packet < in_.whole()) load_all(data[u], from, in_.offset(packet * sizeof(Data)));
      }
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint64_t packet = tile + u * step() + lane;
        if (packet < in_.whole()) out_.store(into_, packet, reduce_ranks<Element, kWorld>(data[u], 0, reduction()));
      }
    });
  }

  /// Ranks start at different peers, so that they do not all read from the same peer at once.
  SYMMETRA_DEVICE void load_all(Data* data, const uint8_t* const* from, uint64_t offset_bytes) const {
    SYMMETRA_UNROLL
    for (uint32_t start = 0; start < kWorld; ++start) {
      if (start != args_.rank) continue;
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kWorld; ++k) {
        const uint32_t rank = (start + k) % (kWorld == 0 ? 1 : kWorld);  // known at compile time, so data stay in registers
        data[rank] = platform::load<Data>(from[rank] + offset_bytes);
      }
    }
  }

  SYMMETRA_DEVICE void reduce_any(uint64_t packet) const {
    if (!in_.has(packet)) return;
    typename Element::template Accumulator<4> total(reduction());
    total.start(in_.load(Sources::at(args_, 0), packet));
    for (uint32_t rank = 1; rank < args_.world; ++rank) total.add(in_.load(Sources::at(args_, rank), packet));
    out_.store(into_, packet, total.round());
  }

  SYMMETRA_DEVICE Reduction reduction() const { return {args_.reduction, args_.world}; }

  const ExchangeArgs& args_;
  uint8_t* into_;
  Strip<Data> in_;
  Strip<Data> out_;
};

/// A rank that has given up does not reduce, because parts may be missing.
template <class Work>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) reduce_local(SYMMETRA_ARGS(ExchangeArgs) args) {
  platform::wait_prior();
  if (platform::load_relaxed(&args.wait.progress->failed) == 0) Work(args).run();
  platform::release_next();
}

}  // namespace symmetra::kernels
