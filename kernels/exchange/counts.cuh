// Ranks that know only their own counts exchange the numbers of bytes that they send and expect before the exchange. A
// difference is reported and the group fails; in that case the exchange moves nothing.
#pragma once
#include "kernels/call.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

/// Exchanges four values between each pair of ranks: [epoch parity][source][4] LL packets. One block.
SYMMETRA_KERNEL void exchange_counts(SYMMETRA_ARGS(CountsArgs) args) {
  using Protocol = LL<I64>;
  constexpr uint32_t kValues = 4;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  device::Waiter waiter(args.wait, kOpCounts, call.epoch, call.poisoned != 0);
  uint64_t* largest = platform::shared<uint64_t>();  // of every rank; then whether peers can address its output
  uint64_t* direct = largest + kMaxWorld;
  const auto at = [&](uint32_t rank, uint32_t source, uint32_t which) {
    return reinterpret_cast<Packet*>(args.peers[rank]) + (Protocol::buffer(call.epoch) * args.world + source) * kValues + which;
  };
  for (uint32_t peer = platform::thread(); peer < args.world; peer += platform::threads()) {
    const uint64_t ours[kValues] = {args.send_bytes[peer], args.receive_bytes[peer], args.offset_bytes[peer],
                                    args.largest_bytes << 1 | (args.direct != 0)};
    uint64_t told[kValues] = {ours[0], ours[1], ours[2], ours[3]};
    for (uint32_t i = 0; i < kValues && peer != args.rank && !waiter.gave_up(); ++i) {
      const Words<2> data{{static_cast<uint32_t>(ours[i]), static_cast<uint32_t>(ours[i] >> 32)}};
      platform::store_packet(at(peer, args.rank, i), Protocol::encode(data, call.epoch));
    }
    for (uint32_t i = 0; i < kValues && peer != args.rank; ++i) {
      Packet packet{};
      waiter.until(peer, [&] {
        packet = platform::load_packet(at(args.rank, peer, i));
        return Protocol::arrived(packet, call.epoch);
      });
      const Words<2> data = Protocol::decode(packet);
      told[i] = uint64_t{data.word[1]} << 32 | data.word[0];
    }
    // Both ranks of a pair find a difference; the top bit is set if the reporting rank is the sender.
    constexpr uint64_t kWeSend = uint64_t{1} << 63;
    if (!waiter.gave_up() && told[0] != ours[1]) {
      device::report(args.wait, kStatusMismatch, kOpCounts, peer, call.epoch, told[0], ours[1]);
    } else if (!waiter.gave_up() && told[1] != ours[0]) {
      device::report(args.wait, kStatusMismatch, kOpCounts, peer, call.epoch, ours[0], told[1] | kWeSend);
    } else if (!waiter.gave_up() && args.direct_from_bytes == 0 && (told[3] & 1) == 0) {
      device::report(args.wait, kStatusMismatch, kOpCounts, peer, call.epoch, 0, kNotReached);
    }
    args.learned->theirs_bytes[peer] = told[2];
    largest[peer] = told[3] >> 1;
    direct[peer] = told[3] & 1;
  }
  platform::sync_block();
  if (platform::thread() == 0) {
    uint64_t most = 0, all = 1;
    for (uint32_t rank = 0; rank < args.world; ++rank) {
      most = largest[rank] > most ? largest[rank] : most;
      all &= direct[rank];
    }
    args.learned->largest_bytes = most;
    args.learned->direct = most >= args.direct_from_bytes ? all : 0;
  }
  platform::release_next();
  advance_state(args.state, call.epoch, 0);
}

}  // namespace symmetra::kernels
