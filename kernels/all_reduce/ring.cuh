// Ring all-reduce: a reduce-scatter and an all-gather in which every rank sends only to the next rank. All links are
// busy all the time and carry the fewest bytes. For the largest messages. The schedule is in schedules.cuh.
//
// A block is a channel. It passes its pieces of every chunk round the ring, independently of other channels. A rank
// writes to a queue of a few slots in the next rank's memory, so scratch does not grow with the message. One counter is
// the number of pieces that have arrived, another the number of pieces that have been consumed and may be overwritten.
// When peers can address the outputs, sums go directly into the next rank's output.
#pragma once
#include "kernels/all_reduce/schedules.cuh"
#include "kernels/barrier.cuh"
#include "kernels/operand.cuh"
#include "kernels/reduce.cuh"

namespace symmetra::kernels {

/// One channel of one rank in one call. A position numbers the pieces that a channel sends in a call, [round][step].
/// Counters of positions continue from call to call, are equal in all channels, and wrap.
template <class Element>
class RingChannel {
 public:
  using Data = Words<4>;

  SYMMETRA_DEVICE RingChannel(const AllReduceArgs& args, const Call& call)
      : args_(args),
        schedule_{args.rank, args.world},
        reduction_{args.reduction, args.world},
        direct_(args.outputs != nullptr),
        next_output_(direct_ ? static_cast<uint8_t*>(args.outputs->address[schedule_.next()]) + args.outputs_offset_bytes : nullptr),
        cut_(args.count, aligned(args, next_output_)),
        shares_(cut_.packets(), args.world),
        pieces_(shares_.size, platform::blocks(), static_cast<uint32_t>(args.slot_packets)),
        queued_(direct_ ? schedule_.partial_sends() : schedule_.sends()),
        begin_(call.previous),
        waiter_(args.wait, kOpAllReduce, call.epoch, call.poisoned != 0) {}

  /// Value of the counters when the call has ended.
  SYMMETRA_DEVICE uint32_t end() const { return begin_ + pieces_.rounds * schedule_.sends(); }

  /// Advances the counters of channels that this call does not use. Block 0 does this before it sends anything. Peers
  /// write these counters in the next call at the earliest, and they begin it only after they have received what block
  /// 0 sends.
  SYMMETRA_DEVICE void refresh() const {
    if (platform::block() != 0) return;
    for (uint32_t channel = platform::blocks() + platform::thread(); channel < kRingChannels; channel += platform::threads()) {
      platform::store_relaxed(count(args_.rank, channel, kArrived), end());
      platform::store_relaxed(count(args_.rank, channel, kConsumed), end());
    }
  }

  /// Runs the channel; called by all threads of the block. All ranks have begun the call, so every queue is empty.
  SYMMETRA_DEVICE void run() {
    // The last step only receives. With direct output there is nothing to do: the data is already in place.
    const uint32_t steps = direct_ ? schedule_.sends() : schedule_.steps();
    for (uint32_t round = 0; round < pieces_.rounds; ++round) {
      for (uint32_t step = 0; step < steps; ++step) {
        if (!take(round, step)) return;
      }
    }
    if (platform::thread() == 0) await(schedule_.previous(), kArrived, end());
    platform::sync_block();
  }

 private:
  /// Counters of a channel in a rank's memory: pieces that the previous rank has put there, and pieces that the next
  /// rank has consumed from its own queue.
  static constexpr uint32_t kArrived = 0, kConsumed = 1;

  /// Packets at one end of a step: in a queue slot or in an operand.
  struct Place {
    uint8_t* base;  ///< null: this end does not exist
    bool operand;
  };
  struct Ends {
    Place mine, received, first, second;  ///< two sources, two targets
  };

  SYMMETRA_DEVICE static bool aligned(const AllReduceArgs& args, const uint8_t* next_output) {
    const uintptr_t all =
        reinterpret_cast<uintptr_t>(args.input) | reinterpret_cast<uintptr_t>(args.output) | reinterpret_cast<uintptr_t>(next_output);
    return all % sizeof(Data) == 0;
  }
  SYMMETRA_DEVICE uint32_t* count(uint32_t rank, uint32_t channel, uint32_t which) const {
    return reinterpret_cast<uint32_t*>(args_.peers[rank] + kRingCountsOffset + (2 * channel + which) * kRingCountBytes);
  }
  SYMMETRA_DEVICE Place slot(uint32_t rank, uint32_t number) const {
    const uint64_t slot = platform::block() * kRingSlots + number % kRingSlots;
    return {args_.peers[rank] + kRingQueuesOffset + slot * args_.slot_packets * sizeof(Data), false};
  }
  SYMMETRA_DEVICE void await(uint32_t peer, uint32_t which, uint32_t until) {
    const uint32_t* counted = count(args_.rank, platform::block(), which);
    waiter_.until(peer, [&] { return static_cast<int32_t>(platform::load_acquire(counted) - until) >= 0; });
  }
  SYMMETRA_DEVICE void tell(uint32_t peer, uint32_t which, uint32_t value) const {
    platform::store_release(count(peer, platform::block(), which), value);
  }
  /// The counter value at which the piece with this number in the queue has been passed on.
  SYMMETRA_DEVICE uint32_t count_of(uint32_t number) const { return begin_ + number / queued_ * schedule_.sends() + number % queued_ + 1; }

  /// One step: waits, moves a piece, updates the neighbours' counters. Returns false on all threads when the wait gave
  /// up. A wait depends on an earlier step of a neighbour, so waits form no cycle: a piece that arrives was sent one
  /// step before, and a slot was emptied at least kRingSlots - 1 steps before.
  SYMMETRA_DEVICE bool take(uint32_t round, uint32_t step) {
    static_assert(kRingSlots > 1);
    // The counter value after this step, and the number in the queue of the piece it adds.
    const uint32_t after = begin_ + round * schedule_.sends() + step + 1, number = round * queued_ + step;
    const bool from_queue = step > 0 && step <= queued_, to_queue = step < queued_;
    const bool first = platform::thread() == 0, last = platform::thread() == platform::threads() - 1;
    if (first && step > 0) await(schedule_.previous(), kArrived, after - 1);
    if (last && to_queue && number >= kRingSlots) await(schedule_.next(), kConsumed, count_of(number - kRingSlots));
    if (platform::sync_block_or(waiter_.gave_up())) return false;
    move(round, step, number);
    platform::sync_block();  // orders what the block read and wrote before the counts
    if (first && step < schedule_.sends()) tell(schedule_.next(), kArrived, after);
    if (last && from_queue) tell(schedule_.previous(), kConsumed, after - 1);
    return true;
  }

  SYMMETRA_DEVICE void move(uint32_t round, uint32_t step, uint32_t number) const {
    const Place none{nullptr, false}, input{static_cast<uint8_t*>(const_cast<void*>(args_.input)), true},
        output{static_cast<uint8_t*>(args_.output), true};
    Ends ends{none, none, none, none};
    if (schedule_.reduces(step)) ends.mine = input;
    if (schedule_.receives(step)) ends.received = step <= queued_ ? slot(args_.rank, number - 1) : output;
    // Data received directly into the output stays there.
    if (schedule_.completes(step) && !ends.received.operand) ends.first = output;
    if (step < queued_) ends.second = slot(schedule_.next(), number);
    if (step >= queued_ && step < schedule_.sends()) ends.second = {next_output_, true};
    const uint32_t chunk = schedule_.chunk(step), packets = shares_.of(chunk);
    const uint32_t offset = (round * platform::blocks() + platform::block()) * pieces_.packets;
    const uint32_t rest = offset < packets ? packets - offset : 0;
    move(ends, shares_.first(chunk) + offset, rest < pieces_.packets ? rest : pieces_.packets);
  }

  /// Moves packets [begin, begin + length) of the message: whole packets with many in flight, then the short or
  /// unaligned rest.
  SYMMETRA_DEVICE void move(const Ends& ends, uint32_t begin, uint32_t length) const {
    const uint32_t rest = cut_.whole() > begin ? cut_.whole() - begin : 0, whole = rest < length ? rest : length;
    const auto at = [&](const Place& place) { return place.base + (place.operand ? uint64_t{begin} * sizeof(Data) : 0); };
    const uint8_t *mine = at(ends.mine), *received = at(ends.received);
    uint8_t *first = at(ends.first), *second = at(ends.second);
    for (uint32_t tile = platform::thread(); tile < whole; tile += kUnroll * platform::threads()) {
      Data ours[kUnroll], theirs[kUnroll];
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i < whole && ends.mine.base != nullptr) ours[u] = platform::load<Data>(mine + uint64_t{i} * sizeof(Data));
        if (i < whole && ends.received.base != nullptr) theirs[u] = platform::load<Data>(received + uint64_t{i} * sizeof(Data));
      }
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i >= whole) continue;
        const Data data = value(ends, ours[u], theirs[u]);
        if (ends.first.base != nullptr) platform::store(first + uint64_t{i} * sizeof(Data), data);
        if (ends.second.base != nullptr) platform::store(second + uint64_t{i} * sizeof(Data), data);
      }
    }
    for (uint32_t i = whole + platform::thread(); i < length; i += platform::threads()) {
      const Data ours = load(ends.mine, begin, i), theirs = load(ends.received, begin, i);
      const Data data = value(ends, ours, theirs);
      store(ends.first, begin, i, data);
      store(ends.second, begin, i, data);
    }
  }

  /// The received partial sum comes first, so the sum is in ring order. Every rank rounds it.
  SYMMETRA_DEVICE Data value(const Ends& ends, const Data& mine, const Data& received) const {
    if (ends.received.base == nullptr) return mine;
    return ends.mine.base == nullptr ? received : reduce_two<Element>(received, mine, reduction_, ends.first.base != nullptr);
  }
  SYMMETRA_DEVICE Data load(const Place& place, uint32_t begin, uint32_t i) const {
    if (place.base == nullptr) return Data{};
    return place.operand ? cut_.load(place.base, begin + i) : platform::load<Data>(place.base + uint64_t{i} * sizeof(Data));
  }
  SYMMETRA_DEVICE void store(const Place& place, uint32_t begin, uint32_t i, const Data& data) const {
    if (place.base == nullptr) return;
    if (place.operand) return cut_.store(place.base, begin + i, data);
    platform::store(place.base + uint64_t{i} * sizeof(Data), data);
  }

  /// Packets that a thread has in flight.
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 4 ? platform::kLoadsInFlight : 4;

  const AllReduceArgs& args_;
  RingSchedule schedule_;
  Reduction reduction_;
  bool direct_;
  uint8_t* next_output_;
  Packets<Element, Data> cut_;
  Shares shares_;
  RingPieces pieces_;
  uint32_t queued_;  ///< number of first steps of a round that write to the queue
  uint32_t begin_;   ///< value of the counters at the start of the call
  device::Waiter waiter_;
};

template <class Element>
SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) ring(SYMMETRA_ARGS(AllReduceArgs) args) {
  platform::wait_prior();
  const Call call = begin_call(args.state, args.wait);
  RingChannel<Element> channel(args, call);
  BlockBarrier barrier(args, args.world, call);
  if (barrier.enter()) {
    barrier.refresh();
    channel.refresh();
    channel.run();
  }
  platform::release_next();
  end_call(args.state, args.wait, call.epoch, channel.end());
}

}  // namespace symmetra::kernels
