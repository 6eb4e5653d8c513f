// A strip: the bytes that one rank sends another, as packets. Packet p is the bytes [p * k, (p + 1) * k) of the strip.
// A strip is one range of memory, or the rows of a tensor's part. The last packet may be short: reads are padded with
// zeros, and writes stop at its end. Element types do not matter.
#pragma once
#include "kernels/numeric.cuh"

namespace symmetra::kernels {

/// Packets for `bytes` bytes. An empty strip takes one empty packet: a rank receives from every other rank in every
/// call, which keeps ranks within one call of each other.
template <class Data>
SYMMETRA_DEVICE uint64_t packets_of(uint64_t bytes) {
  return bytes == 0 ? 1 : (bytes + sizeof(Data) - 1) / sizeof(Data);
}

template <class Data>
class Strip {
 public:
  /// Whether an access is few instructions.
  static constexpr bool kShort = false;

  Strip() = default;
  /// Rows of `row_bytes` that start `pitch_bytes` apart; 0: one row. `addresses`: the bitwise or of all addresses that
  /// the strip is read from and written to.
  SYMMETRA_DEVICE Strip(uint64_t bytes, uint64_t row_bytes, uint64_t pitch_bytes, uintptr_t addresses)
      : bytes_(bytes), row_bytes_(row_bytes), pitch_bytes_(pitch_bytes) {
    const uint64_t all = addresses | row_bytes | pitch_bytes;
    whole_ = all % sizeof(Data) == 0 ? bytes / sizeof(Data) : 0;
    words_ = all % 4 == 0;
  }

  /// Number of leading packets that one access moves.
  SYMMETRA_DEVICE uint64_t whole() const { return whole_; }
  SYMMETRA_DEVICE bool has(uint64_t packet) const { return packet * sizeof(Data) < bytes_; }
  /// The offset in memory of byte `at` of the strip.
  SYMMETRA_DEVICE uint64_t offset(uint64_t at) const { return row_bytes_ == 0 ? at : at / row_bytes_ * pitch_bytes_ + at % row_bytes_; }

  SYMMETRA_DEVICE Data load(const uint8_t* base, uint64_t packet) const {
    const uint64_t at = packet * sizeof(Data);
    if (packet < whole_) return platform::load<Data>(base + offset(at));
    Data data{};
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < sizeof(Data) / 4; ++i) data.word[i] = load_word(base, at + 4 * i);
    return data;
  }

  SYMMETRA_DEVICE void store(uint8_t* base, uint64_t packet, const Data& data) const {
    const uint64_t at = packet * sizeof(Data);
    if (packet < whole_) return platform::store(base + offset(at), data);
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < sizeof(Data) / 4; ++i) store_word(base, at + 4 * i, data.word[i]);
  }

 private:
  SYMMETRA_DEVICE uint32_t load_word(const uint8_t* base, uint64_t at) const {
    if (words_ && at + 4 <= bytes_) return platform::load<uint32_t>(base + offset(at));
    uint32_t word = 0;
    SYMMETRA_ROLLED
    for (uint32_t i = 0; i < 4; ++i) {
      if (at + i < bytes_) word |= uint32_t{platform::load<uint8_t>(base + offset(at + i))} << (8 * i);
    }
    return word;
  }

  SYMMETRA_DEVICE void store_word(uint8_t* base, uint64_t at, uint32_t word) const {
    if (words_ && at + 4 <= bytes_) return platform::store(base + offset(at), word);
    SYMMETRA_ROLLED
    for (uint32_t i = 0; i < 4; ++i) {
      if (at + i < bytes_) platform::store(base + offset(at + i), static_cast<uint8_t>(word >> (8 * i)));
    }
  }

  uint64_t bytes_;
  uint64_t row_bytes_;
  uint64_t pitch_bytes_;
  uint64_t whole_;
  bool words_;
};

/// A strip of one row, of whole packets in aligned memory. A fast substitute for Strip.
template <class Data>
class Whole {
 public:
  static constexpr bool kShort = true;

  Whole() = default;
  SYMMETRA_DEVICE Whole(uint64_t bytes, uint64_t, uint64_t, uintptr_t) : packets_(static_cast<uint32_t>(bytes / sizeof(Data))) {
    platform::keep(packets_);
  }
  SYMMETRA_DEVICE bool has(uint32_t packet) const { return packet < packets_; }
  SYMMETRA_DEVICE Data load(const uint8_t* base, uint32_t packet) const {
    return platform::load<Data>(reinterpret_cast<const Data*>(base) + packet);
  }
  SYMMETRA_DEVICE void store(uint8_t* base, uint32_t packet, const Data& data) const {
    platform::store(reinterpret_cast<Data*>(base) + packet, data);
  }

 private:
  uint32_t packets_;
};

SYMMETRA_DEVICE uintptr_t address_bits(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace symmetra::kernels
