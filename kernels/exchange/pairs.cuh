// Messages between pairs of ranks, without the other ranks. For each direction and channel between two ranks there is a
// queue of a few slots in the receiver's memory. A counter there is the number of pieces that have arrived; a counter
// at the sender is the number of pieces that the receiver has taken out. All counters only grow, from launch to launch,
// and wrap. A message is cut into pieces, which the channels take in turn, and every piece begins with a header that
// contains the length of the message.
//
// A task is a channel of a lane, at one of its ends: it moves its pieces of all messages of the lane. A block has any
// number of tasks and moves a piece of any task that is ready, so no task waits for another one, even with few blocks.
#pragma once
#include "kernels/exchange/strip.cuh"
#include "symmetra/device/wait.cuh"

namespace symmetra::kernels {

class PairBlock {
 public:
  using Data = Words<4>;

  SYMMETRA_DEVICE explicit PairBlock(const PairsArgs& args)
      : args_(args),
        chosen_(platform::shared<uint32_t>()),
        tasks_(platform::shared<Task>() + 1),
        all_(args.lanes * args.channels),
        waiter_(args.wait, args.op, 0, device::kBounded && platform::load_relaxed(&args.wait.progress->failed) != 0) {}

  /// Moves all pieces of the block's tasks; called by all threads of the block.
  SYMMETRA_DEVICE void run() {
    each_task([&](Task& task, uint32_t number) {
      task.end = args_.first[lane_of(number)];
      task.count = *own_count(args_.end[task.end], channel_of(number));
      begin(task, number);
    });
    platform::sync_block();
    const bool first = platform::thread() == 0;
    while (true) {
      if (first) *chosen_ = choose();
      platform::sync_block();
      const uint32_t chosen = *chosen_;
      if (chosen == kNone) break;
      const uint32_t number = platform::block() + chosen * platform::blocks();
      move(number, tasks_[chosen]);
      platform::sync_block();  // orders what the block read and wrote before the count
      if (first) pass(number, tasks_[chosen]);
    }
    each_task([&](const Task& task, uint32_t number) {
      const PairEnd& any = args_.end[args_.first[lane_of(number)]];
      *own_count(any, channel_of(number)) = task.count;
    });
  }

 private:
  /// The progress of a channel of a lane. In block-shared memory.
  struct Task {
    uint32_t count;  ///< pieces that the queue has passed so far, in all launches
    uint32_t end;    ///< the current message
    uint32_t left;   ///< its remaining pieces; 0: no further message
    uint32_t piece;  ///< the number of the next piece in the message
  };
  static_assert(sizeof(Task) == 16, "pair_shared_bytes");

  template <class Body>
  SYMMETRA_DEVICE void each_task(Body body) const {
    for (uint32_t own = platform::thread();; own += platform::threads()) {
      const uint32_t number = platform::block() + own * platform::blocks();
      if (number >= all_) return;
      body(tasks_[own], number);
    }
  }
  /// Lanes alternate: the first channels of all lanes are the first tasks.
  SYMMETRA_DEVICE uint32_t lane_of(uint32_t number) const { return number % args_.lanes; }
  SYMMETRA_DEVICE uint32_t channel_of(uint32_t number) const { return number / args_.lanes; }

  /// Begins the task's current message, or the next one of which the channel has pieces.
  SYMMETRA_DEVICE void begin(Task& task, uint32_t number) const {
    const uint32_t channel = channel_of(number), behind = args_.first[lane_of(number) + 1];
    for (; task.end < behind; ++task.end) {
      const uint32_t pieces = args_.end[task.end].pieces;
      task.left = pieces > channel ? (pieces - channel - 1) / args_.channels + 1 : 0;
      if (task.left != 0) break;
    }
    task.piece = channel;
  }

  SYMMETRA_DEVICE uint32_t* own_count(const PairEnd& end, uint32_t channel) const {
    const uint32_t peer = end.sends != 0 ? end.peer : kMaxWorld + end.peer;
    return args_.counts + peer * kPairChannels + channel;
  }
  /// In the memory of `rank`: pieces that `other` has put there, or has taken out of its own queue.
  SYMMETRA_DEVICE uint32_t* told(uint32_t rank, uint32_t other, uint32_t channel, bool taken) const {
    const uint32_t offset = (other * kPairChannels + channel) * kPairCountBytes + (taken ? kPairTakenOffset : 0);
    return reinterpret_cast<uint32_t*>(args_.peers[rank] + offset);
  }
  /// The slot of a piece from `source` to `target`.
  SYMMETRA_DEVICE uint8_t* slot(uint32_t source, uint32_t target, uint32_t channel, uint32_t count) const {
    const uint32_t place = source < target ? source : source - 1;  // a rank has no queue of its own
    const uint32_t slot = (place * args_.channels + channel) * kPairSlots + count % kPairSlots;
    return args_.peers[target] + kPairQueuesOffset + uint64_t{slot} * args_.slot_packets * sizeof(Data);
  }

  /// Whether a task can move a piece: a sender has a free slot, a receiver has a full one.
  SYMMETRA_DEVICE bool ready(const Task& task, uint32_t number) const {
    const PairEnd& end = args_.end[task.end];
    const uint32_t count = platform::load_acquire(told(args_.rank, end.peer, channel_of(number), end.sends != 0));
    const auto ahead = static_cast<int32_t>(task.count - count);
    return end.sends != 0 ? ahead < static_cast<int32_t>(kPairSlots) : ahead < 0;
  }

  /// Waits until a task can move a piece. kNone: all are done, or the wait gave up. By one thread.
  SYMMETRA_DEVICE uint32_t choose() {
    if (waiter_.gave_up() || differs_) return kNone;
    const uint32_t own = (all_ - platform::block() + platform::blocks() - 1) / platform::blocks();
    uint32_t found = kNone, peer = kNone;
    waiter_.until(peer, [&] {
      peer = kNone;
      for (uint32_t i = 0; i < own; ++i) {
        const uint32_t at = next_ + i < own ? next_ + i : next_ + i - own;
        const uint32_t number = platform::block() + at * platform::blocks();
        if (tasks_[at].left == 0) continue;
        if (peer == kNone) peer = args_.end[tasks_[at].end].peer;
        if (!ready(tasks_[at], number)) continue;
        found = at;
        return true;
      }
      return peer == kNone;
    });
    // Tasks take turns.
    if (found != kNone) next_ = found + 1 < own ? found + 1 : 0;
    return found;
  }

  /// Moves one piece between the operand and its slot.
  SYMMETRA_DEVICE void move(uint32_t number, const Task& task) {
    const PairEnd& end = args_.end[task.end];
    const uint64_t packets = (end.bytes + sizeof(Data) - 1) / sizeof(Data), begin = uint64_t{task.piece} * end.piece_packets;
    const uint64_t rest = packets - begin;
    const uint32_t length = rest < end.piece_packets ? static_cast<uint32_t>(rest) : end.piece_packets;
    const Strip<Data> strip(end.bytes, 0, 0, address_bits(end.address));
    const bool sends = end.sends != 0, last = platform::thread() == platform::threads() - 1;
    uint8_t* const head =
        sends ? slot(args_.rank, end.peer, channel_of(number), task.count) : slot(end.peer, args_.rank, channel_of(number), task.count);
    uint8_t* const data = head + sizeof(Data);
    if (sends && last) {
      const Data words{{static_cast<uint32_t>(end.bytes), static_cast<uint32_t>(end.bytes >> 32), args_.op, task.piece}};
      platform::store(head, words);
    }
    if (!sends && platform::thread() == 0) head_ = platform::load<Data>(head);
    for (uint32_t tile = platform::thread(); tile < length; tile += kUnroll * platform::threads()) {
      Data moving[kUnroll];
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i < length) moving[u] = sends ? strip.load(end.address, begin + i) : platform::load<Data>(data + uint64_t{i} * sizeof(Data));
      }
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i >= length) continue;
        if (sends) {
          platform::store(data + uint64_t{i} * sizeof(Data), moving[u]);
        } else {
          strip.store(end.address, begin + i, moving[u]);
        }
      }
    }
  }

  /// Notifies the other rank that the piece is there, or that its slot is free. By one thread.
  SYMMETRA_DEVICE void pass(uint32_t number, Task& task) {
    const PairEnd& end = args_.end[task.end];
    const bool sends = end.sends != 0;
    if (!sends) {
      const uint64_t bytes = uint64_t{head_.word[1]} << 32 | head_.word[0];
      if (bytes != end.bytes || head_.word[2] != args_.op) {
        device::report(args_.wait, kStatusMismatch, args_.op, end.peer, task.count, bytes, end.bytes);
        differs_ = true;
        return;
      }
    }
    platform::store_release(told(end.peer, args_.rank, channel_of(number), !sends), ++task.count);
    task.piece += args_.channels;
    if (--task.left != 0) return;
    ++task.end;
    begin(task, number);
  }

  /// Packets that a thread has in flight.
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 4 ? platform::kLoadsInFlight : 4;

  const PairsArgs& args_;
  uint32_t* chosen_;
  Task* tasks_;
  uint32_t all_;
  device::Waiter waiter_;
  uint32_t next_ = 0;
  bool differs_ = false;
  Data head_{};
};

SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) pairs(SYMMETRA_ARGS(PairsArgs) args) {
  platform::wait_prior();
  PairBlock(args).run();
  platform::release_next();
}

}  // namespace symmetra::kernels
