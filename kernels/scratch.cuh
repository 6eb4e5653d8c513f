// The scratch region of a packet protocol: [buffer][hop][source][slot_packets].
// Offsets come from the size of a slot and never from the size of a call, so a small
// call after a large one cannot meet its packets.
#pragma once
#include "kernels/call.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

template <class Protocol, uint32_t kHops>
class Scratch {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE Scratch(const AllReduceArgs& args, uint32_t world, const Call& call)
      : args_(args), world_(world), slot_(static_cast<uint32_t>(args.slot_packets)), call_(call) {
    now_ = Protocol::buffer(call.epoch) * kHops * world * slot_;
  }

  /// Puts packet `i` of this rank into the memory of `peer`.
  SYMMETRA_DEVICE void send(uint32_t hop, uint32_t peer, uint32_t i, const Data& data) const {
    platform::store_packet(at(peer, now_, hop, args_.rank, i), Protocol::encode(data, call_.epoch));
  }

  /// Packet `i` of `peer`, when it has come. Undefined where the wait gave up.
  SYMMETRA_DEVICE Data await(device::Waiter& waiter, uint32_t hop, uint32_t peer, uint32_t i) const {
    const Packet* from = at(args_.rank, now_, hop, peer, i);
    Packet packet;
    waiter.until(peer, [&] {
      packet = platform::load_packet(from);
      return Protocol::arrived(packet, call_.epoch);
    });
    return Protocol::decode(packet);
  }

  /// Makes room for packet `i` of `peer`, if the call before used it. To be called between
  /// sending and awaiting, where it costs nothing.
  SYMMETRA_DEVICE void clear(uint32_t hop, uint32_t peer, uint32_t i) const {
    if constexpr (Protocol::kClears) {
      if (i < call_.previous) platform::store_packet(at(args_.rank, before(), hop, peer, i), Protocol::empty());
    }
  }

  /// Clears what the call before used and this one, of `packets` packets a source, does not.
  SYMMETRA_DEVICE void clear_rest(uint32_t packets, uint32_t lanes_log2) const {
    if constexpr (Protocol::kClears) {
      if (call_.previous <= packets) return;
      const uint32_t lanes = 1u << lanes_log2, step = platform::blocks() << lanes_log2;
      uint32_t first = (packets & ~(lanes - 1)) + (platform::block() << lanes_log2);
      for (; first < call_.previous; first += step) {
        for (uint32_t t = platform::thread(); t < world_ << lanes_log2; t += platform::threads()) {
          const uint32_t peer = t >> lanes_log2, i = first + (t & (lanes - 1));
          for (uint32_t hop = 0; hop < kHops && i >= packets && peer != args_.rank; ++hop) clear(hop, peer, i);
        }
      }
    }
  }

  /// LL: tags repeat after 2^32 calls, and a packet not written since would pass for new. So
  /// each call, by one thread, empties one packet a source that this call does not use: after
  /// slot_packets calls of either parity each has been used or emptied. Nobody else writes it
  /// now: peers do so in call k + 2 at the earliest, when they have received our packets of
  /// call k + 1, sent when we had ended call k. `used(hop, source)`: packets of this call.
  template <class Used>
  SYMMETRA_DEVICE void scrub(Used used) const {
    if constexpr (!Protocol::kClears) {
      if (platform::block() != 0 || platform::thread() != platform::threads() - 1) return;
      const uint32_t i = (call_.epoch / 2) % slot_;
      for (uint32_t hop = 0; hop < kHops; ++hop) {
        for (uint32_t source = 0; source < world_; ++source) {
          if (i >= used(hop, source)) platform::store_packet(at(args_.rank, now_, hop, source, i), Packet{});
        }
      }
    }
  }

 private:
  SYMMETRA_DEVICE uint32_t before() const {
    const uint32_t buffer = Protocol::buffer(call_.epoch + Protocol::kBuffers - 1);
    return buffer * kHops * world_ * slot_;
  }
  SYMMETRA_DEVICE Packet* at(uint32_t rank, uint32_t buffer, uint32_t hop, uint32_t source, uint32_t i) const {
    return reinterpret_cast<Packet*>(args_.peers[rank]) + (buffer + (hop * world_ + source) * slot_ + i);
  }

  const AllReduceArgs& args_;
  uint32_t world_;
  uint32_t slot_;
  Call call_;
  uint32_t now_;
};

}  // namespace symmetra::kernels
