// The memory of a group of ranks for one all-reduce algorithm, and calls on it.
#pragma once
#include <random>

#include "tests/kernels/launcher.hpp"
#include "tests/kernels/reference.hpp"

namespace trial {

using namespace symmetra::kernels;
using launcher::Launch;
using launcher::Memory;
using reference::Bits;
using reference::kFloats;

constexpr size_t kGuardBytes = 64;

/// The kernel of a launch on the host; null where there is none.
template <class Args>
host::Entry entry_of(const Args& args, const Geometry& geometry) {
  return host::kernel(kind_of(args), &args, geometry);
}

/// One call of all ranks.
struct Case {
  uint64_t count;
  uint32_t dtype;
  uint32_t blocks;
  uint32_t threads;
  uint32_t lanes_log2;
  uint32_t input_shift;   ///< elements by which the input is off a 64-byte boundary
  uint32_t output_shift;  ///< elements by which the output is off
  bool in_place;
  bool special;  ///< NaN, infinities, denormals, sentinels instead of plain numbers
  uint32_t reduction = kSum;
  bool plain = false;           ///< a ring: peers cannot address the operands
  uint32_t codec = kCodecNone;  ///< of 16-bit types; the sum is of codes that pass as they are
};

/// Random bits of an element.
inline Bits element(std::mt19937_64& random, uint32_t dtype, bool special) {
  const Bits bits = random();
  const uint32_t bytes = element_bytes(dtype);
  const Bits mask = bytes == 8 ? ~Bits{0} : (Bits{1} << 8 * bytes) - 1;
  if (!reference::is_float(dtype)) return bits & mask;
  static const Bits kSpecial[6][10] = {
      {0xFFFFFFFF, 0x7F800001, 0xFFC00000, 0x7F800000, 0xFF800000, 1, 0x80000000, 0x7F7FFFFF, 0x807FFFFF, 0},
      {~Bits{0}, 0xFFFFFFFF00000000, 0x7FF0000000000001, 0x7FF0000000000000, 0xFFF0000000000000, 1, Bits{1} << 63, 0x7FEFFFFFFFFFFFFF,
       0x800FFFFFFFFFFFFF, 0},
      {0xFFFF, 0x7C01, 0xFE00, 0x7C00, 0xFC00, 1, 0x8000, 0x7BFF, 0x83FF, 0},
      {0xFFFF, 0x7F81, 0xFFC0, 0x7F80, 0xFF80, 1, 0x8000, 0x7F7F, 0x807F, 0},
      {0xFF, 0xFF, 0xFF, 0x7F, 0xFE, 1, 0x80, 0x7E, 0x87, 0},
      {0xFF, 0xFF, 0x7D, 0x7C, 0xFC, 1, 0x80, 0x7B, 0x83, 0}};
  if (special) return bits % 4 == 0 ? bits >> 8 & mask : kSpecial[dtype <= kBF16 ? dtype : 4 + dtype - kF8E4M3][bits % 10];
  const double value = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-61;  // -4 to 4
  switch (dtype) {
    case kF32:
      return reference::cast<uint32_t>(static_cast<float>(value));
    case kF64:
      return reference::cast<Bits>(value);
    default:
      return reference::encode(reference::format_of(dtype), static_cast<float>(value));
  }
}

/// Bits of an element that a codec passes on as it is: in each group one rank has codes, the largest among them, and the
/// others zeros.
inline Bits code(std::mt19937_64& random, const Case& c, uint64_t i, uint32_t rank, uint32_t world) {
  const uint64_t drawn = random();
  if (i / kGroupElems % world != rank) return 0;
  const uint32_t most = c.codec == kCodecFp8 ? 7 : (1u << (codec_bits(c.codec) - 1)) - 1;
  const auto size = static_cast<float>(i % kGroupElems == 0 ? most : drawn % (most + 1)) * (c.codec == kCodecFp8 ? 64 : 1);
  return reference::encode(c.dtype == kF16 ? reference::kHalf : reference::kBrain, size != 0 && drawn >> 63 != 0 ? -size : size);
}

/// Bits of an element of a rank's input.
inline Bits term(std::mt19937_64& random, const Case& c, uint64_t i, uint32_t rank, uint32_t world) {
  return c.codec == kCodecNone ? element(random, c.dtype, c.special) : code(random, c, i, rank, world);
}

/// Whether there are codecs for an all-reduce.
inline bool has_codecs(uint32_t algorithm, uint32_t dtype) {
  return (algorithm == kOneShotSentinel || algorithm == kTwoShotSentinel) && (dtype == kF16 || dtype == kBF16);
}

/// Makes a case one of any codec.
inline void quantise(std::mt19937_64& random, Case& c) {
  c.codec = kCodecFp8 + random() % (kCodecs - kCodecFp8);
  c.lanes_log2 = random() % 6;
  c.reduction = kSum;
}

/// Block-shared memory of a case.
inline uint32_t shared_bytes_of(const Case& c, uint32_t algorithm, uint32_t world) {
  return c.codec == kCodecNone ? shared_bytes(algorithm, world, c.lanes_log2) : kSharedBytes;
}

/// An operand between guards.
class Buffer {
 public:
  Buffer(const Case& c, uint32_t shift) : bytes_(element_bytes(c.dtype)), memory_(2 * kGuardBytes + (c.count + shift) * bytes_, 0x5A) {
    begin_ = kGuardBytes + shift * bytes_;
    end_ = begin_ + c.count * bytes_;
  }
  uint8_t* data() const { return memory_.as() + begin_; }
  void set(uint64_t i, Bits bits) { std::memcpy(data() + i * bytes_, &bits, bytes_); }
  Bits get(uint64_t i) const {
    Bits bits = 0;
    std::memcpy(&bits, data() + i * bytes_, bytes_);
    return bits;
  }
  bool guards_hold() const {
    for (size_t i = 0; i < memory_.bytes(); ++i) {
      if ((i < begin_ || i >= end_) && memory_.as()[i] != 0x5A) return false;
    }
    return true;
  }
  bool untouched() const {
    for (size_t i = 0; i < memory_.bytes(); ++i) {
      if (memory_.as()[i] != 0x5A) return false;
    }
    return true;
  }

 private:
  uint32_t bytes_;
  Memory memory_;
  size_t begin_;
  size_t end_;
};

/// The operands of one call on every rank, and the expected output. Every rank writes its input
/// before the call, in order on its stream, and looks at its output and spoils both after it:
/// a kernel that reads too early, ends too early or lets a peer in too long is found out.
class Operands {
 public:
  Operands(uint32_t algorithm, const Case& c, uint32_t world, std::mt19937_64& random) : case_(c), terms_(world), wrong_(world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      inputs_.emplace_back(c, c.input_shift);
      outputs_.emplace_back(c, c.output_shift);
      in_table_.address[rank] = inputs_[rank].data();
      out_table_.address[rank] = c.in_place ? inputs_[rank].data() : outputs_[rank].data();
    }
    for (uint64_t i = 0; i < c.count; ++i) {
      std::vector<Bits> terms;
      for (uint32_t rank = 0; rank < world; ++rank) {
        terms.push_back(term(random, c, i, rank, world));
        terms_[rank].push_back(terms.back());
      }
      expected_.push_back(reference::result(algorithm, c.dtype, c.reduction, terms, i, c.count));
    }
  }
  Operands(const Operands&) = delete;

  const PeerTable* inputs() const { return &in_table_; }
  const PeerTable* outputs() const { return &out_table_; }
  const Buffer& output(uint32_t rank) const { return case_.in_place ? inputs_[rank] : outputs_[rank]; }

  Launch produce(uint32_t rank) {
    return {[this, rank] {
              for (uint64_t i = 0; i < case_.count; ++i) inputs_[rank].set(i, terms_[rank][i]);
            },
            {1, 1, kSharedBytes, 0}};
  }
  Launch consume(uint32_t rank) {
    return {[this, rank] {
              for (uint64_t i = 0; i < case_.count; ++i) wrong_[rank] += output(rank).get(i) != expected_[i];
              wrong_[rank] += !inputs_[rank].guards_hold() + !outputs_[rank].guards_hold();
              for (uint64_t i = 0; i < case_.count; ++i) {
                inputs_[rank].set(i, kSpoiled);
                outputs_[rank].set(i, kSpoiled);
              }
            },
            {1, 1, kSharedBytes, 0}};
  }

  /// Elements that were wrong, plus one for every broken guard, plus one for every element
  /// that a peer wrote after its owner had gone on.
  uint64_t wrong() const {
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < inputs_.size(); ++rank) {
      wrong += wrong_[rank];
      const Bits spoiled = kSpoiled & (~Bits{0} >> (64 - 8 * element_bytes(case_.dtype)));
      for (uint64_t i = 0; i < case_.count; ++i) wrong += output(rank).get(i) != spoiled;
    }
    return wrong;
  }

 private:
  static constexpr Bits kSpoiled = 0xC3C3C3C3C3C3C3C3;

  Case case_;
  std::vector<Buffer> inputs_, outputs_;
  std::vector<std::vector<Bits>> terms_;
  std::vector<Bits> expected_;
  std::vector<uint64_t> wrong_;
  PeerTable in_table_{}, out_table_{};
};

/// The memory of a rank on its device.
struct RankMemory {
  Memory region, state{kMaxBlocks * sizeof(BlockState)}, progress{sizeof(Progress)}, status{sizeof(Status)};
  explicit RankMemory(size_t region_bytes) : region(region_bytes, 0) {}
  Status& why() const { return *status.as<Status>(); }
  /// A ring's count of a channel: 0, the arrived packets; 1, the consumed packets.
  uint32_t* count(uint32_t channel, uint32_t which) const {
    return reinterpret_cast<uint32_t*>(region.as() + kRingCountsOffset + (2 * channel + which) * kRingCountBytes);
  }
};

/// Ranks that share the region of one algorithm.
class Group {
 public:
  Group(uint32_t algorithm, uint32_t world, uint64_t most_bytes, uint32_t epoch, uint64_t timeout_ns = 60'000'000'000)
      : algorithm_(algorithm), world_(world), timeout_ns_(timeout_ns) {
    slot_packets_ = slot_packets(algorithm, most_bytes, world);
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks_.emplace_back(region_bytes(algorithm, slot_packets_, world));
      for (uint32_t block = 0; block < kMaxBlocks; ++block) ranks_[rank].state.as<BlockState>()[block].epoch = epoch;
      if (algorithm != kTwoShotZeroCopy && algorithm != kRing) continue;
      for (uint32_t flag = 0; flag < kMaxBlocks * kMaxWorld; ++flag) ranks_[rank].region.as<uint32_t>()[flag] = 2 * epoch;
      if (algorithm != kRing) continue;
      // As if the calls before had passed something on: counts wrap soon after the epochs.
      for (uint32_t block = 0; block < kMaxBlocks; ++block) ranks_[rank].state.as<BlockState>()[block].previous = epoch;
      for (uint32_t count = 0; count < 2 * kRingChannels; ++count) *ranks_[rank].count(count / 2, count % 2) = epoch;
    }
  }

  uint32_t world() const { return world_; }
  uint64_t slot() const { return slot_packets_; }
  const RankMemory& rank(uint32_t rank) const { return ranks_[rank]; }

  Launch launch(const Case& c, const Operands& operands, uint32_t rank) const {
    AllReduceArgs args{};
    args.input = operands.inputs()->address[rank];
    args.output = operands.outputs()->address[rank];
    args.count = c.count;
    for (uint32_t peer = 0; peer < world_; ++peer) args.peers[peer] = ranks_[peer].region.as();
    args.slot_packets = slot_packets_;
    args.state = ranks_[rank].state.as<BlockState>();
    args.inputs = operands.inputs();
    args.outputs = c.plain ? nullptr : operands.outputs();
    args.wait = {ranks_[rank].progress.as<Progress>(), ranks_[rank].status.as<Status>(), timeout_ns_};
    args.rank = rank;
    args.world = world_;
    args.dtype = c.dtype;
    args.algorithm = algorithm_;
    args.reduction = c.reduction;
    args.codec = c.codec;
    args.lanes_log2 = c.lanes_log2;
    const Geometry geometry{c.blocks, c.threads, shared_bytes_of(c, algorithm_, world_), 0};
    const host::Entry entry = entry_of(args, geometry);
    if (entry == nullptr) return {nullptr, geometry};
    return {[args, entry] { entry(&args); }, geometry};
  }

 private:
  uint32_t algorithm_;
  uint32_t world_;
  uint64_t timeout_ns_;
  uint64_t slot_packets_;
  std::deque<RankMemory> ranks_;
};

}  // namespace trial
