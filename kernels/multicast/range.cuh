// Multicast calls: between two barriers, every rank moves its own range of the message. Two-shot and one-shot
// all-reduce, reduce-scatter, all-gather and broadcast differ only in the range, in whether the rank sums, and in
// whether it stores on all ranks. After NVLink SHARP as in NCCL and PyTorch's symmetric memory.
//
// Multicast moves packets of 16 bytes at multiples of 16. The elements before the first packet and after the last are
// moved by ordinary accesses to the memory of each rank, as is a range whose two ends are not aligned alike.
#pragma once
#include "kernels/barrier.cuh"
#include "kernels/operand.cuh"

namespace symmetra::kernels {

/// A block raises its flag on every rank, its own too, by one store.
struct AllFlags {
  SYMMETRA_DEVICE static void raise(const MulticastArgs& args, uint32_t, uint32_t flag, uint32_t count, bool) {
    if (platform::thread() == 0) platform::multicast_store_release(args.flags, uint64_t{flag} * 4, count);
  }
};

/// 8-bit floats with the sums of a switch: each addition is rounded to f16, and the sum to the type. So elements
/// outside packets get the same bits as those in a packet on the host device.
template <class Float8>
struct AddedInF16 : Float8 {
  SYMMETRA_DEVICE static float plus(float a, float b) { return platform::unpack_f16(platform::pack_f16({a + b, 0})).low; }
};

/// How a packet of an element type is summed.
template <class Element>
constexpr platform::Adds kAdds = Element::kBytes == 4 ? platform::Adds::kWords : platform::Adds::kDoubleWords;
template <>
inline constexpr platform::Adds kAdds<F32> = platform::Adds::kF32;
template <>
inline constexpr platform::Adds kAdds<F16> = platform::Adds::kF16;
template <>
inline constexpr platform::Adds kAdds<BF16> = platform::Adds::kBF16;
template <>
inline constexpr platform::Adds kAdds<AddedInF16<F8E4M3>> = platform::Adds::kE4M3;
template <>
inline constexpr platform::Adds kAdds<AddedInF16<F8E5M2>> = platform::Adds::kE5M2;

/// This rank's range of a call. In place works: one thread reads and writes each packet, and no other rank does.
template <class Element, uint32_t kTask>
class Range {
 public:
  static constexpr bool kSums = kTask != kMulticastToAll, kToAll = kTask != kMulticastSum;

  SYMMETRA_DEVICE explicit Range(const MulticastArgs& args) : args_(args) {
    const uint64_t from = kSums ? args.from_bytes : reinterpret_cast<uintptr_t>(args.from);
    const uint64_t into = kToAll ? args.into_bytes : reinterpret_cast<uintptr_t>(args.into);
    const uint64_t ahead = (from ^ into) % sizeof(Data) == 0 ? -from % sizeof(Data) : args.bytes;
    head_bytes_ = ahead < args.bytes ? ahead : args.bytes;
    packets_ = static_cast<uint32_t>((args.bytes - head_bytes_) / sizeof(Data));
  }

  SYMMETRA_DEVICE void move() const {
    each(0, head_bytes_);
    for (uint32_t tile = first(); tile < packets_; tile += kUnroll * step()) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t t) {
        Data data[kUnroll];
        SYMMETRA_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t i = tile + u * step() + t;
          if (i < packets_) data[u] = load(head_bytes_ + uint64_t{i} * sizeof(Data));
        }
        SYMMETRA_UNROLL
        for (uint32_t u = 0; u < kUnroll; ++u) {
          const uint32_t i = tile + u * step() + t;
          if (i < packets_) store(head_bytes_ + uint64_t{i} * sizeof(Data), data[u]);
        }
      });
    }
    each(head_bytes_ + uint64_t{packets_} * sizeof(Data), args_.bytes);
  }

 private:
  using Data = Words<4>;
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 4 ? 1 : 4;

  /// A block's first tile, and the distance to its next.
  SYMMETRA_DEVICE uint32_t first() const { return platform::block() << args_.lanes_log2; }
  SYMMETRA_DEVICE uint32_t step() const { return platform::blocks() << args_.lanes_log2; }

  /// The packet at an offset in the range.
  SYMMETRA_DEVICE Data load(uint64_t bytes) const {
    if constexpr (!kSums) return platform::load<Data>(own_from() + bytes);
    if constexpr (kSums) {
      const Data sum = platform::multicast_load_sum<kAdds<Element>, Data>(args_.arenas, args_.from_bytes + bytes);
      typename Element::Value values[kValues<Element, 4>];
      Element::unpack(sum, values);
      return Element::template pack<4>(values);  // a NaN has one bit pattern
    }
  }
  SYMMETRA_DEVICE void store(uint64_t bytes, const Data& data) const {
    if constexpr (kToAll) {
      platform::multicast_store(args_.arenas, args_.into_bytes + bytes, data);
    } else {
      platform::store(own_into() + bytes, data);
    }
  }

  /// Elements from one offset in the range to another, by ordinary accesses.
  SYMMETRA_DEVICE void each(uint64_t begin, uint64_t end) const {
    if (begin == end) return;
    const Packets<Element, Data> cut((end - begin) / Element::kBytes, false);
    for (uint32_t tile = first(); tile < cut.packets(); tile += step()) {
      platform::each(1u << args_.lanes_log2, [&](uint32_t t) {
        if (tile + t < cut.packets()) one(cut, begin, tile + t);
      });
    }
  }
  SYMMETRA_DEVICE void one(const Packets<Element, Data>& cut, uint64_t begin, uint32_t packet) const {
    Data data;
    if constexpr (kSums) {
      typename Sum<Element>::template Accumulator<4> total({kSum, args_.world});
      total.start(cut.load(arena(0) + args_.from_bytes + begin, packet));
      for (uint32_t rank = 1; rank < args_.world; ++rank) total.add(cut.load(arena(rank) + args_.from_bytes + begin, packet));
      data = total.round();
    } else {
      data = cut.load(own_from() + begin, packet);
    }
    if constexpr (kToAll) {
      for (uint32_t rank = 0; rank < args_.world; ++rank) cut.store(arena(rank) + args_.into_bytes + begin, packet, data);
    } else {
      cut.store(own_into() + begin, packet, data);
    }
  }

  SYMMETRA_DEVICE uint8_t* arena(uint32_t rank) const { return static_cast<uint8_t*>(args_.arenas.table->address[rank]); }
  SYMMETRA_DEVICE const uint8_t* own_from() const { return static_cast<const uint8_t*>(args_.from); }
  SYMMETRA_DEVICE uint8_t* own_into() const { return static_cast<uint8_t*>(args_.into); }

  const MulticastArgs& args_;
  uint64_t head_bytes_;
  uint32_t packets_;
};

template <class Element, uint32_t kTask>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) multicast(SYMMETRA_ARGS(MulticastArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  const Range<Element, kTask> range(args);
  BlockBarrier<MulticastArgs, AllFlags> barrier(args, args.world, call, args.op);
  if (barrier.enter()) range.move();
  platform::release_next();
  barrier.leave();
  end_call(args.state, args.wait, call.epoch, 0);
}

}  // namespace symmetra::kernels
