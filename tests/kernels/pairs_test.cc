// Messages between pairs of ranks on the host platform: ranks as threads over shared memory. In each round every rank
// has random messages to and from others, of every length around a stream, a piece and a slot, at any address, in its own
// number of blocks and threads; ranks without messages run nothing, and one rank runs its messages in several launches. Counts
// cross the wrap. Then a message has another length than its receiver expects: the receiver reports both lengths, and
// its memory after the message is unchanged. Meant to run plainly and under ThreadSanitizer, AddressSanitizer and
// UBSan. Prints one line; exits 1 when anything is wrong.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>

#include "tests/kernels/launcher.hpp"

namespace trial {
namespace {

using namespace symmetra::kernels;
using launcher::Launch;
using launcher::Memory;

constexpr uint32_t kRounds = 12;
constexpr uint8_t kSpoiled = 0xC3;
constexpr uint64_t kGuard = 64;

/// One message of a round: both of its ends.
struct Message {
  uint32_t from, to, round;
  uint64_t sent_bytes, expected_bytes;
  uint32_t from_shift, into_shift, piece_packets;
  std::unique_ptr<Memory> source, target;
  std::vector<uint8_t> data;

  uint8_t* out() const { return source->as() + kGuard + from_shift; }
  uint8_t* in() const { return target->as() + kGuard + into_shift; }
};

class Trial {
 public:
  Trial(uint32_t world, uint32_t threads, std::mt19937_64& random)
      : world_(world),
        threads_(threads),
        streams_(1 + below(random, 5)),
        channels_(1 + below(random, 8)),
        stream_packets_(kLeastStreamPackets << below(random, 3)),
        slot_packets_(1 + below(random, 9)),
        random_(random) {
    for (uint32_t rank = 0; rank < world_; ++rank) {
      const uint64_t packets = streams_ * stream_packets_ + channels_ * kPairSlots * slot_packets_;
      regions_.emplace_back(kPairStreamsOffset + (world_ - 1) * packets * 16);
      // Streams begin as zeros. A queue may hold anything.
      std::memset(regions_.back().as() + kPairStreamsOffset + (world_ - 1) * uint64_t{streams_} * stream_packets_ * 16, 0x77,
                  (world_ - 1) * uint64_t{channels_} * kPairSlots * slot_packets_ * 16);
      counts_.emplace_back(kPairCounts * 4);
      progress_.emplace_back(sizeof(Progress));
      status_.emplace_back(sizeof(Status));
    }
    // Every queue has passed 2^32 pieces, less a few, on both sides, so the count soon wraps. Every stream also begins its
    // last lap before the wrap.
    for (uint32_t from = 0; from < world_; ++from) {
      for (uint32_t to = 0; to < world_; ++to) {
        for (uint32_t way = 0; way < kPairWays; ++way) {
          const uint32_t count = way < kPairStreams ? 0u - stream_packets_ : 0u - below(random_, 9);
          counts_[from].as<uint32_t>()[to * kPairWays + way] = count;
          counts_[to].as<uint32_t>()[(kMaxWorld + from) * kPairWays + way] = count;
          told(to, from, way, 0) = count;
          told(from, to, way, kPairTakenOffset) = count;
        }
      }
    }
  }
  Trial(const Trial&) = delete;

  /// Random rounds; returns how many bytes and reports were wrong.
  uint64_t run() {
    std::vector<std::vector<Launch>> launches(world_);
    for (uint32_t round = 0; round < kRounds; ++round) {
      std::vector<Message*> all;
      for (uint32_t from = 0; from < world_; ++from) {
        for (uint32_t to = 0; to < world_; ++to) {
          for (uint32_t count = from == to ? 0 : below(random_, 5); count > 1; --count) {
            const uint64_t bytes = length();
            all.push_back(&draw(from, to, round, bytes, bytes));
          }
        }
      }
      // One rank may run its messages one by one, because all others run theirs concurrently.
      const uint32_t slow = below(random_, 2 * world_);
      for (uint32_t rank = 0; rank < world_; ++rank) {
        std::vector<Message*> own;
        std::copy_if(all.begin(), all.end(), std::back_inserter(own), [rank](Message* m) { return m->from == rank || m->to == rank; });
        if (rank != slow) {
          enqueue(rank, own, launches[rank]);
        } else {
          for (Message* one : mixed(own)) enqueue(rank, {one}, launches[rank]);
        }
      }
    }
    launcher::run(launches);
    uint64_t wrong = wrong_;
    for (const Message& message : messages_) wrong += untouched(*message.target, 0, message.target->bytes());
    for (const Memory& status : status_) wrong += status.as<Status>()->code != kStatusOk;
    return wrong;
  }

  /// Rank 0 sends rank 1 another length than it expects.
  uint64_t run_unequal() {
    const uint64_t sent = length(), expected = sent + 1 + below(random_, 40);
    const bool longer = below(random_, 2) == 0;
    Message& message = draw(0, 1, 0, longer ? expected : sent, longer ? sent : expected);
    message.piece_packets = slot_packets_;
    std::vector<std::vector<Launch>> launches(world_);
    // Rank 0 may wait in vain. Rank 1 is notified, however late rank 0 begins.
    timeout_ns_ = 200'000'000;
    enqueue(0, {&message}, launches[0], false);
    timeout_ns_ = 20'000'000'000;
    enqueue(1, {&message}, launches[1], false);
    launcher::run(launches);
    const Status& status = *status_[1].as<Status>();
    const bool reported = status.code == kStatusMismatch && status.op == kOpPairs && status.peer == 0 &&
                          status.theirs[0] == message.sent_bytes && status.theirs[1] == message.expected_bytes;
    const uint64_t begin = kGuard + message.into_shift, end = begin + message.expected_bytes;
    return !reported + untouched(*message.target, 0, begin) + untouched(*message.target, end, message.target->bytes());
  }

 private:
  static uint32_t below(std::mt19937_64& random, uint32_t count) { return static_cast<uint32_t>(random() % count); }

  uint32_t& told(uint32_t rank, uint32_t other, uint32_t way, uint32_t offset) const {
    return *reinterpret_cast<uint32_t*>(regions_[rank].as() + offset + (other * kPairWays + way) * kPairCountBytes);
  }

  uint64_t length() {
    const uint64_t slot = slot_packets_ * 16, room = pair_room(stream_packets_) * 8;
    const uint64_t lengths[] = {0,
                                1,
                                3,
                                4,
                                16,
                                slot - 1,
                                slot,
                                slot + 1,
                                room,
                                room + 1,
                                short_bytes() - 1,
                                short_bytes(),
                                short_bytes() + 1,
                                slot * channels_ + 5};
    const uint64_t drawn = below(random_, 18);
    return drawn < 14 ? lengths[drawn] : random_() % (short_bytes() + slot * channels_ * 5);
  }

  /// The longest message that the streams carry.
  uint64_t short_bytes() const { return uint64_t{streams_} * pair_room(stream_packets_) * 8; }

  /// Data packets of a short message in each stream, as both ranks compute them.
  uint32_t share(uint64_t bytes) const {
    const uint64_t packets = (bytes + 7) / 8, even = (packets + streams_ - 1) / streams_, few = pair_room(stream_packets_) / 2;
    return static_cast<uint32_t>(std::max(even, few));
  }

  /// The messages in another order, which keeps that of each lane.
  std::vector<Message*> mixed(const std::vector<Message*>& ordered) {
    std::vector<Message*> places = ordered, result;
    std::shuffle(places.begin(), places.end(), random_);
    const auto alike = [](const Message* one, const Message* other) { return one->from == other->from && one->to == other->to; };
    std::vector<bool> taken(ordered.size());
    for (const Message* place : places) {
      for (size_t i = 0; i < ordered.size(); ++i) {
        if (taken[i] || !alike(ordered[i], place)) continue;
        taken[i] = true;
        result.push_back(ordered[i]);
        break;
      }
    }
    return result;
  }

  Message& draw(uint32_t from, uint32_t to, uint32_t round, uint64_t sent, uint64_t expected) {
    Message& message = messages_.emplace_back();
    message.from = from, message.to = to, message.round = round;
    message.sent_bytes = sent, message.expected_bytes = expected;
    message.from_shift = below(random_, 2) * below(random_, 20), message.into_shift = below(random_, 2) * below(random_, 20);
    message.piece_packets = 1 + below(random_, slot_packets_);
    message.source = std::make_unique<Memory>(2 * kGuard + 32 + sent, kSpoiled);
    message.target = std::make_unique<Memory>(2 * kGuard + 32 + expected, kSpoiled);
    message.data.resize(sent);
    for (uint8_t& byte : message.data) byte = static_cast<uint8_t>(random_());
    return message;
  }

  static uint64_t untouched(const Memory& memory, uint64_t begin, uint64_t end) {
    return static_cast<uint64_t>(std::count_if(memory.as() + begin, memory.as() + end, [](uint8_t byte) { return byte != kSpoiled; }));
  }

  /// A rank writes the data that it sends before the launch; after the launch it checks the received data, and spoils
  /// both.
  void enqueue(uint32_t rank, const std::vector<Message*>& own, std::vector<Launch>& launches, bool checks = true) {
    if (own.empty()) return;
    PairsArgs& args = args_.emplace_back();
    args.wait = {progress_[rank].as<Progress>(), status_[rank].as<Status>(), timeout_ns_};
    args.counts = counts_[rank].as<uint32_t>();
    args.rank = rank, args.world = world_, args.streams = streams_, args.channels = channels_, args.op = kOpPairs;
    args.stream_packets = stream_packets_, args.slot_packets = slot_packets_, args.used_streams = 1;
    for (uint32_t other = 0; other < world_; ++other) args.peers[other] = regions_[other].as();
    // `own` is by sender and receiver, so messages of a lane follow each other.
    uint32_t ends = 0;
    const Message* before = nullptr;
    for (const Message* message : own) {
      const bool sends = message->from == rank;
      const uint64_t bytes = sends ? message->sent_bytes : message->expected_bytes;
      const uint64_t cut = ((bytes + 15) / 16 + message->piece_packets - 1) / message->piece_packets;
      const uint32_t pieces = bytes <= short_bytes() ? 0 : static_cast<uint32_t>(cut);
      if (pieces == 0) args.used_streams = streams_;
      args.used_channels = std::max(args.used_channels, std::min(pieces, channels_));
      args.end[ends++] = {sends ? message->out() : message->in(),
                          bytes,
                          sends ? message->to : message->from,
                          sends,
                          pieces == 0 ? share(bytes) : message->piece_packets,
                          pieces};
      if (before == nullptr || before->from != message->from || before->to != message->to) ++args.lanes;
      args.first[args.lanes] = static_cast<uint8_t>(ends);
      before = message;
    }
    const uint32_t blocks = std::min(1 + below(random_, 4), kMaxBlocks);
    const Geometry geometry{blocks, 1 + below(random_, threads_), pair_shared_bytes(args, blocks), 0};
    const host::Entry entry = host::kernel(kind_of(args), &args, geometry);
    if (entry == nullptr) {
      ++wrong_;
      return;
    }
    const auto alone = [&](std::function<void()> body) { launches.push_back({std::move(body), {1, 1, kSharedBytes, 0}}); };
    alone([rank, own] {
      for (const Message* message : own) {
        if (message->from == rank) std::copy(message->data.begin(), message->data.end(), message->out());
      }
    });
    launches.push_back({[entry, &args] { entry(&args); }, geometry});
    if (!checks) return;
    alone([this, rank, own] {
      for (const Message* message : own) {
        if (message->from == rank) std::fill_n(message->out(), message->sent_bytes, kSpoiled);
        if (message->to != rank) continue;
        wrong_ += static_cast<uint64_t>(!std::equal(message->data.begin(), message->data.end(), message->in()));
        std::fill_n(message->in(), message->expected_bytes, kSpoiled);
      }
    });
  }

  uint32_t world_, threads_, streams_, channels_, stream_packets_, slot_packets_;
  uint64_t timeout_ns_ = 20'000'000'000;
  std::mt19937_64& random_;
  std::deque<Memory> regions_, counts_, progress_, status_;
  std::deque<Message> messages_;
  std::deque<PairsArgs> args_;
  std::atomic<uint64_t> wrong_ = 0;
};

/// Launches that do not fit their memory have no kernel.
uint64_t refused() {
  PairsArgs good{};
  good.world = 3, good.rank = 1, good.streams = 2, good.channels = 4, good.stream_packets = 16, good.slot_packets = 3, good.lanes = 2;
  good.used_streams = good.used_channels = 2, good.op = kOpPairs;
  good.end[0] = {nullptr, 49, 0, 1, 3, 2};
  good.end[1] = {nullptr, 0, 0, 0, 0, 0};
  good.end[2] = {nullptr, 2 * 8 * pair_room(16), 0, 0, pair_room(16), 0};
  good.first[1] = 1, good.first[2] = 3;
  const Geometry geometry{2, 8, pair_shared_bytes(good, 2), 0};
  const auto has = [](const PairsArgs& args, const Geometry& shape) { return host::kernel(kind_of(args), &args, shape) != nullptr; };
  uint64_t wrong = !has(good, geometry);
  const auto bad = [&](auto change) {
    PairsArgs args = good;
    Geometry shape = geometry;
    change(args, shape);
    wrong += has(args, shape);
  };
  bad([](PairsArgs& args, Geometry&) { args.end[1].sends = 1; });                      // two directions in a lane
  bad([](PairsArgs& args, Geometry&) { args.end[1].sends = args.end[2].sends = 1; });  // two lanes to one rank
  bad([](PairsArgs& args, Geometry&) { args.end[2].peer = 2; });                       // two ranks in a lane
  bad([](PairsArgs& args, Geometry&) { args.first[0] = 1; });                          // a lane without messages
  bad([](PairsArgs& args, Geometry&) { args.first[2] = kMostPairEnds + 1; });
  bad([](PairsArgs& args, Geometry&) { args.end[0].peer = 1; });           // to itself
  bad([](PairsArgs& args, Geometry&) { args.end[0].peer = 3; });           // to a rank that does not exist
  bad([](PairsArgs& args, Geometry&) { args.end[0].piece_packets = 4; });  // longer than a slot
  bad([](PairsArgs& args, Geometry&) { args.end[0].pieces = 1; });         // a piece too few
  bad([](PairsArgs& args, Geometry&) { args.end[0].bytes = uint64_t{1} << 48; });
  bad([](PairsArgs& args, Geometry&) { ++args.end[2].bytes; });          // more than its pieces
  bad([](PairsArgs& args, Geometry&) { ++args.end[2].piece_packets; });  // more than the ring has room for
  bad([](PairsArgs& args, Geometry&) { args.used_streams = 1; });
  bad([](PairsArgs& args, Geometry&) { args.used_channels = 1; });
  bad([](PairsArgs& args, Geometry&) { args.used_channels = 5; });
  bad([](PairsArgs& args, Geometry&) { args.streams = kPairStreams + 1; });
  bad([](PairsArgs& args, Geometry&) { args.stream_packets = 24; });  // laps would not follow each other
  bad([](PairsArgs& args, Geometry&) { args.op = 256; });
  bad([](PairsArgs& args, Geometry&) { args.channels = kPairChannels + 1; });
  bad([](PairsArgs& args, Geometry&) { args.lanes = 0; });
  bad([](PairsArgs&, Geometry& shape) { shape.shared_bytes -= 1; });
  bad([](PairsArgs&, Geometry& shape) { shape.blocks = 1; });  // more tasks a block than it has memory for
  return wrong;
}

}  // namespace
}  // namespace trial

int main(int count, char** arguments) {
  const uint32_t trials = count > 1 ? static_cast<uint32_t>(std::atoi(arguments[1])) : 30;
  const uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 15;
  std::mt19937_64 random(seed);
  uint64_t failed = trial::refused();
  for (uint32_t trial = 0; trial < trials; ++trial) {
    const uint32_t world = 2 + static_cast<uint32_t>(random() % 4), threads = trial % 3 * 2 + 1;
    const uint64_t wrong = trial::Trial(world, threads, random).run() + trial::Trial(2, threads, random).run_unequal();
    if (wrong == 0) continue;
    ++failed;
    std::printf("trial %u of seed %llu: %llu wrong (world %u, threads %u)\n", trial, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(wrong), world, threads);
  }
  std::printf("pairs: %u trials of %u rounds, %llu failed\n", trials, trial::kRounds, static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}
