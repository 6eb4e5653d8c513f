// Messages between pairs of ranks, without the other ranks. The messages of one rank to another, and of one direction, are a
// lane. A lane has ways: streams of packets (pair_stream.cuh), and channels. The first stream carries a header of every message,
// in order, so a message of another length than its receiver expects is found. Data of a short message follow in the streams. A
// long message is cut into pieces, which the channels take in turn. A channel is a queue of a few slots in the receiver's memory.
//
// For each way a counter at the receiver is the number of pieces that have arrived; a counter at the sender is the number of
// pieces, or packets, that the receiver has taken out. All counters only grow, from launch to launch, and wrap.
//
// A task is a way of a lane, at one of its ends: it moves its part of all messages of the lane. A block has any number of tasks
// and moves a piece of any task that is ready, so no task waits for another one, even with few blocks.
#pragma once
#include "kernels/exchange/pair_stream.cuh"
#include "kernels/times.cuh"

namespace symmetra::kernels {

class PairBlock {
 public:
  using Data = Words<4>;

  SYMMETRA_DEVICE explicit PairBlock(const PairsArgs& args)
      : args_(args),
        chosen_(platform::shared<uint32_t>()),
        tasks_(reinterpret_cast<PairTask*>(platform::shared<uint32_t>() + 4)),
        all_(args.lanes * (args.used_streams + args.used_channels)),
        own_(all_ > platform::block() ? (all_ - platform::block() + platform::blocks() - 1) / platform::blocks() : 0),
        waiter_(args.wait, args.op, 0, device::kBounded && platform::load_relaxed(&args.wait.progress->failed) != 0) {}

  /// Moves all pieces of the block's tasks; called by all threads of the block.
  SYMMETRA_DEVICE void run() {
    each_task([&](PairTask& task, uint32_t number) {
      task.end = args_.first[lane_of(number)];
      const PairEnd& end = args_.end[task.end];
      task.count = *own_count(end, way_of(number));
      task.seen = platform::load_acquire(told(args_.rank, end.peer, way_of(number), end.sends != 0));
      begin(task, number);
    });
    platform::sync_block();
    while (true) {
      const uint32_t chosen = choose();
      if (chosen == kNone) break;
      const uint32_t number = platform::block() + chosen * platform::blocks();
      const bool last = own_ == 1 && is_last(number, tasks_[chosen]), moved = move(number, tasks_[chosen]);
      if (platform::sync_block_or(!moved || waiter_.gave_up())) break;  // orders what the block read and wrote before the count
      if (platform::thread() == 0) pass(number, tasks_[chosen]);
      if (last) break;
      platform::sync_block();
    }
    each_task([&](const PairTask& task, uint32_t number) {
      const PairEnd& any = args_.end[args_.first[lane_of(number)]];
      *own_count(any, way_of(number)) = task.count;
    });
  }

 private:
  template <class Body>
  SYMMETRA_DEVICE void each_task(Body body) const {
    for (uint32_t i = platform::thread(); i < own_; i += platform::threads()) body(tasks_[i], platform::block() + i * platform::blocks());
  }
  /// Lanes alternate: the first ways of all lanes are the first tasks.
  SYMMETRA_DEVICE uint32_t lane_of(uint32_t number) const { return number % args_.lanes; }
  /// Streams, then channels.
  SYMMETRA_DEVICE uint32_t way_of(uint32_t number) const {
    const uint32_t way = number / args_.lanes;
    return way < args_.used_streams ? way : kPairStreams + way - args_.used_streams;
  }

  /// Begins the task's current message, or the next one of which the way has a part; for a stream also the following messages.
  SYMMETRA_DEVICE void begin(PairTask& task, uint32_t number) const {
    const uint32_t way = way_of(number), behind = args_.first[lane_of(number) + 1];
    if (way < kPairStreams) {
      // A block with other tasks must not wait for more than it knows to be on the way.
      const bool single = own_ != 1 && args_.end[args_.first[lane_of(number)]].sends == 0;
      return PairStream::begin(args_, way, behind, single, task);
    }
    const uint32_t channel = way - kPairStreams;
    task.left = 0;
    for (; task.end < behind; ++task.end) {
      const uint32_t pieces = args_.end[task.end].pieces;
      if (pieces > channel) task.left = (pieces - channel - 1) / args_.channels + 1;
      if (task.left != 0) break;
    }
    task.piece = channel;
  }
  /// Whether the task ends with the messages of a stream that it has begun.
  SYMMETRA_DEVICE bool is_last(uint32_t number, const PairTask& task) const {
    return way_of(number) < kPairStreams && task.end + task.messages == args_.first[lane_of(number) + 1];
  }

  SYMMETRA_DEVICE uint32_t* own_count(const PairEnd& end, uint32_t way) const {
    const uint32_t peer = end.sends != 0 ? end.peer : kMaxWorld + end.peer;
    return args_.counts + peer * kPairWays + way;
  }
  /// In the memory of `rank`: pieces that `other` has put there, or pieces or packets that it has taken out of its own memory.
  SYMMETRA_DEVICE uint32_t* told(uint32_t rank, uint32_t other, uint32_t way, bool taken) const {
    const uint32_t offset = (other * kPairWays + way) * kPairCountBytes + (taken ? kPairTakenOffset : 0);
    return reinterpret_cast<uint32_t*>(args_.peers[rank] + offset);
  }
  /// The place of `source` among the ranks with queues at `target`: a rank has no queue of its own.
  SYMMETRA_DEVICE static uint32_t place(uint32_t source, uint32_t target) { return source < target ? source : source - 1; }
  SYMMETRA_DEVICE PairStream stream(const PairEnd& end, uint32_t way) const {
    const uint32_t source = end.sends != 0 ? args_.rank : end.peer, target = end.sends != 0 ? end.peer : args_.rank;
    const uint64_t packets = uint64_t{place(source, target) * args_.streams + way} * args_.stream_packets;
    return PairStream(args_, way, end.peer, args_.peers[target] + kPairStreamsOffset + packets * sizeof(Packet));
  }
  /// The slot of a channel's next piece.
  SYMMETRA_DEVICE uint8_t* slot(const PairEnd& end, uint32_t way, uint32_t count) const {
    const uint32_t source = end.sends != 0 ? args_.rank : end.peer, target = end.sends != 0 ? end.peer : args_.rank;
    const uint64_t streams = uint64_t{args_.world - 1} * args_.streams * args_.stream_packets;
    const uint32_t slot = (place(source, target) * args_.channels + way - kPairStreams) * kPairSlots + count % kPairSlots;
    return args_.peers[target] + kPairStreamsOffset + (streams + uint64_t{slot} * args_.slot_packets) * sizeof(Data);
  }

  /// Whether a task can move its part of a message: a sender has room, and for a receiver something has arrived.
  SYMMETRA_DEVICE bool ready(const PairTask& task, uint32_t number) const {
    const PairEnd& end = args_.end[task.end];
    const uint32_t way = way_of(number);
    if (way < kPairStreams && end.sends == 0) return stream(end, way).arrived(task.count);
    return ready_at(task, way, end, platform::load_acquire(told(args_.rank, end.peer, way, end.sends != 0)));
  }
  /// Whether the task can move its part when the count of the other rank is `count`.
  SYMMETRA_DEVICE bool ready_at(const PairTask& task, uint32_t way, const PairEnd& end, uint32_t count) const {
    const auto ahead = static_cast<int32_t>(task.count - count);
    if (way < kPairStreams) return ahead + static_cast<int32_t>(task.left) <= static_cast<int32_t>(args_.stream_packets);
    return end.sends != 0 ? ahead < static_cast<int32_t>(kPairSlots) : ahead < 0;
  }

  /// Waits until a task can move a part. kNone: all are done, or the wait gave up. Called by all threads of the block.
  SYMMETRA_DEVICE uint32_t choose() {
    if (own_ == 1 && may_begin(tasks_[0])) return 0;
    if (platform::thread() == 0) *chosen_ = choose_ready();
    platform::sync_block();
    return *chosen_;
  }
  /// Whether the block's only task need not be waited for: a receiver waits for the packets of a stream themselves.
  SYMMETRA_DEVICE bool may_begin(const PairTask& task) const {
    if (task.left == 0) return false;
    const PairEnd& end = args_.end[task.end];
    const uint32_t way = way_of(platform::block());
    return (way < kPairStreams && end.sends == 0) || ready_at(task, way, end, task.seen);
  }
  SYMMETRA_DEVICE uint32_t choose_ready() {
    if (waiter_.gave_up()) return kNone;
    uint32_t found = kNone, peer = kNone;
    waiter_.until(peer, [&] {
      peer = kNone;
      for (uint32_t i = 0; i < own_; ++i) {
        const uint32_t at = next_ + i < own_ ? next_ + i : next_ + i - own_;
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
    if (found != kNone) next_ = found + 1 < own_ ? found + 1 : 0;
    return found;
  }

  /// Moves a part of a message. Returns false on a thread that found a message of another length.
  SYMMETRA_DEVICE bool move(uint32_t number, const PairTask& task) {
    const PairEnd& end = args_.end[task.end];
    const uint32_t way = way_of(number);
    if (way < kPairStreams) return stream(end, way).move(task, end.sends != 0, waiter_);
    move_piece(end, task, slot(end, way, task.count));
    return true;
  }

  /// Moves a piece between the operand and its slot.
  SYMMETRA_DEVICE void move_piece(const PairEnd& end, const PairTask& task, uint8_t* slot) const {
    const uint64_t packets = (end.bytes + sizeof(Data) - 1) / sizeof(Data), begin = uint64_t{task.piece} * end.piece_packets;
    const uint64_t rest = packets - begin;
    const uint32_t length = rest < end.piece_packets ? static_cast<uint32_t>(rest) : end.piece_packets;
    const Strip<Data> strip(end.bytes, 0, 0, address_bits(end.address));
    const uint64_t most = strip.whole() > begin ? strip.whole() - begin : 0;
    const uint32_t whole = most < length ? static_cast<uint32_t>(most) : length;
    uint8_t* const operand = end.address + begin * sizeof(Data);
    copy(end.sends != 0 ? operand : slot, end.sends != 0 ? slot : operand, whole);
    for (uint32_t i = whole + platform::thread(); i < length; i += platform::threads()) {
      uint8_t* const place = slot + uint64_t{i} * sizeof(Data);
      if (end.sends != 0) {
        platform::store(place, strip.load(end.address, begin + i));
      } else {
        strip.store(end.address, begin + i, platform::load<Data>(place));
      }
    }
  }
  SYMMETRA_DEVICE static void copy(const uint8_t* from, uint8_t* to, uint32_t packets) {
    for (uint32_t tile = platform::thread(); tile < packets; tile += kUnroll * platform::threads()) {
      Data moving[kUnroll];
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i < packets) moving[u] = platform::load<Data>(from + uint64_t{i} * sizeof(Data));
      }
      SYMMETRA_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t i = tile + u * platform::threads();
        if (i < packets) platform::store(to + uint64_t{i} * sizeof(Data), moving[u]);
      }
    }
  }

  /// Notifies the other rank of an arrived piece, or of room. By one thread.
  SYMMETRA_DEVICE void pass(uint32_t number, PairTask& task) const {
    const PairEnd& end = args_.end[task.end];
    const uint32_t way = way_of(number);
    if (way >= kPairStreams) {
      platform::store_release(told(end.peer, args_.rank, way, end.sends == 0), ++task.count);
      task.piece += args_.channels;
      if (--task.left != 0) return;
      ++task.end;
    } else {
      // The sender needs no exact count: what a task begins leaves a quarter of the ring free.
      const uint32_t before = task.count, quarter = args_.stream_packets / 4;
      task.count += task.left;
      if (end.sends == 0 && before / quarter != task.count / quarter) {
        platform::store_release(told(end.peer, args_.rank, way, true), task.count);
      }
      task.end += task.messages;
    }
    begin(task, number);
  }

  /// Packets that a thread has in flight.
  static constexpr uint32_t kUnroll = platform::kLoadsInFlight < 8 ? platform::kLoadsInFlight : 8;

  const PairsArgs& args_;
  uint32_t* chosen_;
  PairTask* tasks_;
  uint32_t all_;
  uint32_t own_;
  device::Waiter waiter_;
  uint32_t next_ = 0;
};

SYMMETRA_KERNEL void SYMMETRA_MOST_THREADS(512) pairs(SYMMETRA_ARGS(PairsArgs) args) {
  platform::wait_prior();
  begin_times(args.wait);
  PairBlock(args).run();
  end_times(args.wait);
  platform::release_next();
}

}  // namespace symmetra::kernels
