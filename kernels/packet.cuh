// Packets that prove their own arrival, so that no fence is needed: a receiver polls the packet itself. There are two
// protocols.
#pragma once
#include "kernels/numeric.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

using platform::Packet;

/// Writes 1, 2 or 4 words, changed by `mask`, in one access. Words may arrive one by one.
template <uint32_t kWords>
SYMMETRA_DEVICE void store_words(uint32_t* to, const uint32_t* words, uint32_t mask) {
  const auto two = [&](uint32_t i) { return uint64_t{words[i + 1] ^ mask} << 32 | (words[i] ^ mask); };
  if constexpr (kWords == 4) {
    platform::store_packet(reinterpret_cast<Packet*>(to), {{two(0), two(2)}});
  } else if constexpr (kWords == 2) {
    platform::store_relaxed(reinterpret_cast<uint64_t*>(to), two(0));
  } else {
    platform::store_relaxed(to, *words ^ mask);
  }
}

/// Reads 1, 2 or 4 words in one access and changes them back.
template <uint32_t kWords>
SYMMETRA_DEVICE void load_words(const uint32_t* from, uint32_t* words, uint32_t mask) {
  const auto two = [&](uint32_t i, uint64_t both) {
    words[i] = static_cast<uint32_t>(both) ^ mask;
    words[i + 1] = static_cast<uint32_t>(both >> 32) ^ mask;
  };
  if constexpr (kWords == 4) {
    const Packet packet = platform::load_packet(reinterpret_cast<const Packet*>(from));
    two(0, packet.half[0]);
    two(2, packet.half[1]);
  } else if constexpr (kWords == 2) {
    two(0, platform::load_relaxed(reinterpret_cast<const uint64_t*>(from)));
  } else {
    *words = platform::load_relaxed(from) ^ mask;
  }
}

/// Eight bytes of data: each half packet has one word of data and the call's tag. No buffer is cleared, and any bits
/// may be sent. Two buffers suffice: a peer that writes the buffer of call k again in call k + 2 has received our
/// packets of call k + 1, which we sent after call k had ended.
template <class ElementType>
struct LL {
  using Element = ElementType;
  using Data = Words<2>;
  static constexpr bool kClears = false;
  static constexpr uint32_t kBuffers = 2;

  SYMMETRA_DEVICE static uint32_t buffer(uint32_t epoch) { return epoch & 1; }
  /// Never 0, which fresh memory holds.
  SYMMETRA_DEVICE static uint32_t tag(uint32_t epoch) { return epoch + 1; }
  SYMMETRA_DEVICE static Data sendable(const Data& data) { return data; }
  SYMMETRA_DEVICE static Packet encode(const Data& data, uint32_t epoch) {
    const uint64_t high = uint64_t{tag(epoch)} << 32;
    return {{high | data.word[0], high | data.word[1]}};
  }
  SYMMETRA_DEVICE static bool arrived(const Packet& packet, uint32_t epoch) {
    return packet.half[0] >> 32 == tag(epoch) && packet.half[1] >> 32 == tag(epoch);
  }
  SYMMETRA_DEVICE static Data decode(const Packet& packet) {
    return {{static_cast<uint32_t>(packet.half[0]), static_cast<uint32_t>(packet.half[1])}};
  }
};

/// Sixteen bytes of data: the word kMissing, compared as bits, means "not arrived". It is a NaN in every floating type
/// (in f64 the high word), and another NaN is sent in its place. If fresh memory holds another word, all words are sent
/// changed by kMask, so that nothing has arrived in fresh memory. Three buffers suffice: call k clears the buffer of
/// call k - 1. Peers write it again in call k + 2, after they have received our packets of call k + 1, which we sent
/// after call k had ended.
template <class ElementType>
struct Sentinel {
  using Element = ElementType;
  using Data = Words<4>;
  static constexpr bool kClears = true;
  static constexpr uint32_t kBuffers = 3;
  static constexpr uint32_t kMissing = 0xFFFFFFFF;
  static constexpr uint32_t kMask = kMissing ^ platform::kFreshWord;

  SYMMETRA_DEVICE static uint32_t buffer(uint32_t epoch) { return epoch % 3; }
  SYMMETRA_DEVICE static Packet empty() { return encode({{kMissing, kMissing, kMissing, kMissing}}, 0); }
  SYMMETRA_DEVICE static Data sendable(Data data) {
    SYMMETRA_UNROLL
    for (uint32_t i = Element::kSentinelStep - 1; i < 4; i += Element::kSentinelStep) {
      if (data.word[i] == kMissing) data.word[i] = Element::kQuietNan;
    }
    return data;
  }
  SYMMETRA_DEVICE static Packet encode(const Data& data, uint32_t) {
    return {{uint64_t{data.word[1] ^ kMask} << 32 | (data.word[0] ^ kMask), uint64_t{data.word[3] ^ kMask} << 32 | (data.word[2] ^ kMask)}};
  }
  /// A half packet of f64 is one element and arrives whole; other words may arrive one by one.
  SYMMETRA_DEVICE static bool arrived(const Packet& packet, uint32_t) {
    const Data data = decode(packet);
    bool all = true;
    SYMMETRA_UNROLL
    for (uint32_t i = Element::kSentinelStep - 1; i < 4; i += Element::kSentinelStep) all &= data.word[i] != kMissing;
    return all;
  }
  SYMMETRA_DEVICE static Data decode(const Packet& packet) {
    return {{static_cast<uint32_t>(packet.half[0]) ^ kMask, static_cast<uint32_t>(packet.half[0] >> 32) ^ kMask,
             static_cast<uint32_t>(packet.half[1]) ^ kMask, static_cast<uint32_t>(packet.half[1] >> 32) ^ kMask}};
  }
};

}  // namespace symmetra::kernels
