// All-reduce by recursive doubling: in each step a rank exchanges its whole message with one partner, so each partial
// result covers twice as many ranks. Fewest messages per rank: log2 of the world size. The schedule is in
// schedules.cuh.
#pragma once
#include "kernels/all_reduce/schedules.cuh"
#include "kernels/call.cuh"
#include "kernels/operand.cuh"
#include "kernels/packet.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// The slots of a rank, [buffer][slot][packet]: LL packets, two buffers.
template <class Protocol>
class Exchange {
 public:
  using Data = typename Protocol::Data;

  SYMMETRA_DEVICE Exchange(const AllReduceArgs& args, uint32_t slots, const Call& call)
      : args_(args), slots_(slots), call_(call), waiter_(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0) {}

  /// A thread that has given up sends nothing, because its data are incomplete.
  SYMMETRA_DEVICE void send(uint32_t peer, uint32_t slot, uint32_t packet, const Data& data) const {
    if (!waiter_.gave_up()) platform::store_packet(at(peer, slot, packet), Protocol::encode(data, call_.epoch));
  }
  /// Waits for a packet of `peer`. Undefined when the wait gave up.
  SYMMETRA_DEVICE Data await(uint32_t peer, uint32_t slot, uint32_t packet) {
    const Packet* from = at(args_.rank, slot, packet);
    Packet arrived;
    waiter_.until(peer, [&] {
      arrived = platform::load_packet(from);
      return Protocol::arrived(arrived, call_.epoch);
    });
    return Protocol::decode(arrived);
  }
  /// Clears one packet in each slot that this call does not use; see Scratch::scrub for the reason.
  SYMMETRA_DEVICE void scrub(uint32_t packets) const {
    const uint32_t packet = (call_.epoch / 2) % static_cast<uint32_t>(args_.slot_packets);
    if (packet < packets || platform::block() != 0 || platform::thread() != platform::threads() - 1) return;
    for (uint32_t slot = 0; slot < slots_; ++slot) platform::store_packet(at(args_.rank, slot, packet), Packet{});
  }

 private:
  SYMMETRA_DEVICE Packet* at(uint32_t rank, uint32_t slot, uint32_t packet) const {
    const uint64_t row = Protocol::buffer(call_.epoch) * slots_ + slot;
    return reinterpret_cast<Packet*>(args_.peers[rank]) + (row * args_.slot_packets + packet);
  }

  const AllReduceArgs& args_;
  uint32_t slots_;
  Call call_;
  device::Waiter waiter_;
};

template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) recursive_doubling(SYMMETRA_ARGS(AllReduceArgs) args) {
  using Protocol = LL<Element>;
  using Data = typename Protocol::Data;
  const DoublingSchedule schedule{args.rank, args.world};
  const Reduction reduction{args.reduction, args.world};
  const Operand<Element, Data> operand(args);
  Data* values = platform::shared<Data>();  // one packet per lane, each used by the thread that handles that lane

  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  Exchange<Protocol> exchange(args, schedule.slots(), call);
  for (uint32_t tile = platform::block() << args.lanes_log2; tile < operand.packets(); tile += platform::blocks() << args.lanes_log2) {
    const auto each = [&](auto body) {
      platform::each(1u << args.lanes_log2, [&](uint32_t lane) {
        if (tile + lane < operand.packets()) body(values[lane], tile + lane);
      });
    };
    const uint32_t fold_peer = schedule.fold_peer(), fold_slot = schedule.fold_slot();
    const auto fold = [&](Data& value, uint32_t packet) { exchange.send(fold_peer, fold_slot, packet, value); };
    each([&](Data& value, uint32_t packet) { value = operand.load(packet); });
    if (!schedule.in_core()) {
      each(fold);
      each([&](Data& value, uint32_t packet) { value = exchange.await(fold_peer, fold_slot, packet); });
    } else {
      if (schedule.folds()) {
        each([&](Data& value, uint32_t packet) {
          value = reduce_two<Element>(value, exchange.await(fold_peer, fold_slot, packet), reduction, false);
        });
      }
      for (uint32_t step = 0; step < schedule.steps(); ++step) {
        const uint32_t peer = schedule.peer(step);
        each([&](Data& value, uint32_t packet) { exchange.send(peer, step, packet, value); });
        each([&](Data& value, uint32_t packet) {
          const Data theirs = exchange.await(peer, step, packet);
          const bool last = step + 1 == schedule.steps();
          value =
              args.rank < peer ? reduce_two<Element>(value, theirs, reduction, last) : reduce_two<Element>(theirs, value, reduction, last);
        });
      }
      if (schedule.folds()) each(fold);
    }
    each([&](Data& value, uint32_t packet) { operand.store(packet, value); });
  }
  exchange.scrub(operand.packets());
  platform::sync_block();
  platform::release_next();
  end_call(args.state, args.wait, call.epoch, operand.packets());
}

}  // namespace symmetra::kernels
