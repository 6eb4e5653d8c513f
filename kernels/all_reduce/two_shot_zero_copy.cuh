// Zero-copy two-shot all-reduce: every rank reads its share of all inputs, reduces it, and writes the result into all
// outputs. For large messages in memory that all ranks can address.
#pragma once
#include "kernels/barrier.cuh"
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// The operands of all ranks. In place works: the rank that writes a share is the only one that reads that share of the
/// inputs, and one thread reads and writes each packet.
template <class Element, uint32_t kWorld>
class PeerOperands {
 public:
  using Data = Words<4>;
  static constexpr uint32_t kUnroll = kWorld == 0 || kWorld > platform::kLoadsInFlight ? 1 : platform::kLoadsInFlight / kWorld;

  SYMMETRA_DEVICE explicit PeerOperands(const AllReduceArgs& args)
      : args_(args), world_(world_of<kWorld>(args.world)), reduction_{args.reduction, world_}, cut_(args.count, aligned(args, world_)) {}

  /// Reduces this rank's share: whole packets first, then the short or unaligned rest.
  SYMMETRA_DEVICE void reduce() const {
    const Shares shares(cut_.packets(), world_);
    const uint32_t begin = shares.first(args_.rank), end = begin + shares.of(args_.rank);
    uint32_t middle = begin;
    if constexpr (kWorld != 0) {
      middle = cut_.whole() < end ? cut_.whole() : end;
      reduce_whole(begin, middle);
      if (middle < begin) middle = begin;
    }
    for (uint32_t tile = middle + first(); tile < end; tile += step()) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t t) {
        if (tile + t < end) reduce_any(tile + t);
      });
    }
  }

 private:
  SYMMETRA_DEVICE static const uint8_t* input(const AllReduceArgs& args, uint32_t rank) {
    return static_cast<const uint8_t*>(args.inputs->address[rank]) + args.inputs_offset_bytes;
  }
  SYMMETRA_DEVICE static uint8_t* output(const AllReduceArgs& args, uint32_t rank) {
    return static_cast<uint8_t*>(args.outputs->address[rank]) + args.outputs_offset_bytes;
  }
  SYMMETRA_DEVICE static bool aligned(const AllReduceArgs& args, uint32_t world) {
    uintptr_t all = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      all |= reinterpret_cast<uintptr_t>(input(args, rank)) | reinterpret_cast<uintptr_t>(output(args, rank));
    }
    return all % sizeof(Data) == 0;
  }
  /// A block's first tile, and the distance to its next.
  SYMMETRA_DEVICE uint32_t first() const { return platform::block() << args_.lanes_log2; }
  SYMMETRA_DEVICE uint32_t step() const { return platform::blocks() << args_.lanes_log2; }

  SYMMETRA_DEVICE void reduce_whole(uint32_t begin, uint32_t end) const {
    const uint8_t* from[kWorld];
    uint8_t* to[kWorld];
    SYMMETRA_UNROLL
    for (uint32_t k = 0; k < kWorld; ++k) {
      from[k] = input(args_, k);
      to[k] = output(args_, (args_.rank + k) % kWorld);
    }
    for (uint32_t tile = begin + first(); tile < end; tile += kUnroll * step()) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t t) {
        Data data[kUnroll][kWorld];
        SYMMETRA_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t i = tile + u * step() + t;
          if (i < end) load_all(data[u], from, uint64_t{i} * sizeof(Data));
        }
        SYMMETRA_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t i = tile + u * step() + t;
          if (i < end) store_all(data[u], to, uint64_t{i} * sizeof(Data));
        }
      });
    }
  }

  /// Ranks start at different peers, so that they do not all read from one at once.
  SYMMETRA_DEVICE void load_all(Data* data, const uint8_t* const* from, uint64_t offset_bytes) const {
    SYMMETRA_UNROLL
    for (uint32_t start = 0; start < kWorld; ++start) {
      if (start != args_.rank) continue;
      SYMMETRA_UNROLL
      for (uint32_t k = 0; k < kWorld; ++k) {
        const uint32_t rank = (start + k) % kWorld;  // known at compile time, so data stay in registers
        data[rank] = platform::load<Data>(from[rank] + offset_bytes);
      }
    }
  }
  SYMMETRA_DEVICE void store_all(const Data* data, uint8_t* const* to, uint64_t offset_bytes) const {
    const Data result = reduce_ranks<Element, kWorld>(data, 0, reduction_);
    SYMMETRA_UNROLL
    for (uint32_t k = 0; k < kWorld; ++k) platform::store(to[k] + offset_bytes, result);
  }

  /// Reduces any packet, for any world size.
  SYMMETRA_DEVICE void reduce_any(uint32_t packet) const {
    typename Element::template Accumulator<4> total(reduction_);
    total.start(cut_.load(input(args_, 0), packet));
    for (uint32_t rank = 1; rank < world_; ++rank) total.add(cut_.load(input(args_, rank), packet));
    const Data data = total.round();
    for (uint32_t rank = 0; rank < world_; ++rank) cut_.store(output(args_, rank), packet, data);
  }

  const AllReduceArgs& args_;
  uint32_t world_;
  Reduction reduction_;
  Packets<Element, Data> cut_;
};

template <class Element, uint32_t kWorld>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) two_shot_zero_copy(SYMMETRA_ARGS(AllReduceArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  const PeerOperands<Element, kWorld> operands(args);
  BlockBarrier barrier(args, world_of<kWorld>(args.world), call);
  if (barrier.enter()) operands.reduce();
  platform::release_next();
  barrier.leave();
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
