// Operands of a call as packets. Packet p is the elements [p * k, (p + 1) * k). The last may be short: reads are padded
// with zeros, and writes stop at its end. Input and output may be the same memory.
#pragma once
#include "kernels/numeric.cuh"

namespace symmetra::kernels {

/// Elements divided into packets of Data. `aligned`: every packet starts at a multiple of its size. An empty operand
/// takes one empty packet: every rank receives from the others in every call, which keeps ranks within one call of each
/// other.
template <class Element, class Data>
class Packets {
 public:
  static constexpr uint32_t kElements = sizeof(Data) / Element::kBytes;

  SYMMETRA_DEVICE Packets(uint64_t count, bool aligned)
      : count_(count),
        packets_(count == 0 ? 1 : static_cast<uint32_t>((count + kElements - 1) / kElements)),
        whole_(aligned ? static_cast<uint32_t>(count / kElements) : 0) {}

  SYMMETRA_DEVICE uint32_t packets() const { return packets_; }
  /// Number of leading packets that one access moves.
  SYMMETRA_DEVICE uint32_t whole() const { return whole_; }

  SYMMETRA_DEVICE Data load(const uint8_t* base, uint32_t packet) const {
    if (packet < whole_) return platform::load<Data>(base + uint64_t{packet} * sizeof(Data));
    Data data{};
    if (packet >= packets_) return data;
    SYMMETRA_ROLLED
    for (uint32_t i = kElements; i-- > 0;) {
      const uint64_t element = uint64_t{packet} * kElements + i;
      push(data, element < count_ ? platform::load<Bits>(base + element * Element::kBytes) : Bits{0});
    }
    return data;
  }

  SYMMETRA_DEVICE void store(uint8_t* base, uint32_t packet, Data data) const {
    if (packet < whole_) return platform::store(base + uint64_t{packet} * sizeof(Data), data);
    SYMMETRA_ROLLED
    for (uint32_t i = 0; i < kElements; ++i) {
      const uint64_t element = uint64_t{packet} * kElements + i;
      const Bits bits = pop(data);
      if (element < count_) platform::store(base + element * Element::kBytes, bits);
    }
  }

 private:
  using Bits = typename Element::Bits;
  static constexpr uint32_t kWords = sizeof(Data) / 4, kBits = 8 * sizeof(Bits);

  /// Moves the elements of a packet up by one and puts another before them. Elements pass through the first place so
  /// that loops over them stay loops: this path is rare, and unrolled it would evict the common path from the
  /// instruction cache.
  SYMMETRA_DEVICE static void push(Data& data, Bits bits) {
    SYMMETRA_UNROLL
    for (uint32_t i = kWords - 1; i > 0; --i) {
      if constexpr (sizeof(Bits) < 4) {
        data.word[i] = data.word[i] << kBits | data.word[i - 1] >> (32 - kBits);
      } else if constexpr (sizeof(Bits) == 4) {
        data.word[i] = data.word[i - 1];
      } else if (i >= 2) {
        data.word[i] = data.word[i - 2];
      }
    }
    if constexpr (sizeof(Bits) < 4) {
      data.word[0] = data.word[0] << kBits | bits;
    } else {
      data.word[0] = static_cast<uint32_t>(bits);
      if constexpr (sizeof(Bits) == 8) data.word[1] = static_cast<uint32_t>(bits >> 32);
    }
  }
  /// Removes the first element.
  SYMMETRA_DEVICE static Bits pop(Data& data) {
    Bits bits = static_cast<Bits>(data.word[0]);
    if constexpr (sizeof(Bits) == 8) bits |= Bits{data.word[1]} << 32;
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) {
      constexpr uint32_t kStep = sizeof(Bits) == 8 ? 2 : 1;
      const uint32_t next = i + kStep < kWords ? data.word[i + kStep] : 0;
      if constexpr (sizeof(Bits) < 4) {
        data.word[i] = data.word[i] >> kBits | next << (32 - kBits);
      } else {
        data.word[i] = next;
      }
    }
    return bits;
  }

  uint64_t count_;
  uint32_t packets_;
  uint32_t whole_;
};

/// This rank's input and output.
template <class Element, class Data>
class Operand {
 public:
  SYMMETRA_DEVICE explicit Operand(const AllReduceArgs& args)
      : input_(static_cast<const uint8_t*>(args.input)), output_(static_cast<uint8_t*>(args.output)), cut_(args.count, aligned(args)) {}

  SYMMETRA_DEVICE uint32_t packets() const { return cut_.packets(); }
  SYMMETRA_DEVICE Data load(uint32_t packet) const { return cut_.load(input_, packet); }
  SYMMETRA_DEVICE void store(uint32_t packet, const Data& data) const { cut_.store(output_, packet, data); }

 private:
  SYMMETRA_DEVICE static bool aligned(const AllReduceArgs& args) {
    return (reinterpret_cast<uintptr_t>(args.input) | reinterpret_cast<uintptr_t>(args.output)) % sizeof(Data) == 0;
  }

  const uint8_t* input_;
  uint8_t* output_;
  Packets<Element, Data> cut_;
};

/// The share of packets that each rank reduces: `size` each; the last shares may be short or empty.
struct Shares {
  uint32_t packets;
  uint32_t size;

  SYMMETRA_DEVICE Shares(uint32_t packets, uint32_t world) : packets(packets), size((packets + world - 1) / world) {}
  SYMMETRA_DEVICE uint32_t first(uint32_t rank) const { return rank * size; }
  SYMMETRA_DEVICE bool has(uint32_t rank, uint32_t i) const { return i < size && first(rank) + i < packets; }
  SYMMETRA_DEVICE uint32_t of(uint32_t rank) const {
    const uint32_t begin = first(rank), rest = begin < packets ? packets - begin : 0;
    return rest < size ? rest : size;
  }
};

}  // namespace symmetra::kernels
