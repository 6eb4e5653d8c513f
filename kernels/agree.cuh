// Compares the next call across all ranks before it runs. One block.
#pragma once
#include "kernels/call.cuh"
#include "kernels/packet.cuh"

namespace symmetra::kernels {

SYMMETRA_KERNEL void agree(SYMMETRA_ARGS(AgreeArgs) args) {
  using Protocol = LL<I64>;
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  // A timeout names the call that is compared: its operation is in the lowest 8 bits.
  const uint32_t op = static_cast<uint32_t>(args.ours[1]) & 0xff;
  device::Waiter waiter(args.wait, op, call.epoch, call.poisoned != 0);
  const auto at = [&](uint32_t rank, uint32_t source, uint32_t which) {
    return reinterpret_cast<Packet*>(args.peers[rank]) + (Protocol::buffer(call.epoch) * args.world + source) * 2 + which;
  };
  for (uint32_t peer = platform::thread(); peer < args.world; peer += platform::threads()) {
    if (peer == args.rank) continue;
    uint64_t theirs[2];
    for (uint32_t which = 0; which < 2 && !waiter.gave_up(); ++which) {
      const uint64_t ours = args.ours[which];
      const Words<2> data{{static_cast<uint32_t>(ours), static_cast<uint32_t>(ours >> 32)}};
      platform::store_packet(at(peer, args.rank, which), Protocol::encode(data, call.epoch));
    }
    for (uint32_t which = 0; which < 2; ++which) {
      Packet packet;
      waiter.until(peer, [&] {
        packet = platform::load_packet(at(args.rank, peer, which));
        return Protocol::arrived(packet, call.epoch);
      });
      const Words<2> data = Protocol::decode(packet);
      theirs[which] = uint64_t{data.word[1]} << 32 | data.word[0];
    }
    const bool same = theirs[0] == args.ours[0] && theirs[1] == args.ours[1];
    if (!same && !waiter.gave_up()) {
      device::report(args.wait, kStatusMismatch, kOpAgree, peer, call.epoch, theirs[0], theirs[1]);
    }
  }
  platform::sync_block();
  platform::release_next();
  advance_state(args.state, call.epoch, 2);
}

}  // namespace symmetra::kernels
