// Kernels on the memory of all ranks, on OS threads: bytes moved, words changed together, orders of messages, and waits that
// give up.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <set>
#include <utility>

#include "tests/kernels/heap_atomics.cuh"
#include "tests/kernels/launcher.hpp"

namespace trial {
namespace {

using launcher::Launch;
using launcher::Memory;

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  ++checks;
  if (holds) return;
  if (++failures < 40) {
    std::printf("FAILED: %s (%llu, %llu, %llu)\n", what, static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                static_cast<unsigned long long>(c));
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kTraced = true;
#else
constexpr bool kTraced = false;
#endif
constexpr uint64_t kHeapBytes = 1 << 20;
constexpr uint32_t kChannels = 64;

/// The heaps of a group.
class Heaps {
 public:
  explicit Heaps(uint32_t world, uint64_t timeout_ns = 60'000'000'000) : world_(world), timeout_ns_(timeout_ns) {
    for (uint32_t rank = 0; rank < world; ++rank) ranks_.emplace_back();
  }
  uint32_t world() const { return world_; }
  Heap of(uint32_t rank) {
    Heap heap{};
    for (uint32_t peer = 0; peer < world_; ++peer) {
      heap.base[peer] = ranks_[peer].heap.as();
      heap.signals.pads[peer] = ranks_[peer].pad.as<uint32_t>();
    }
    heap.bytes = kHeapBytes;
    heap.signals.sent = ranks_[rank].sent.as<uint32_t>();
    heap.signals.awaited = ranks_[rank].awaited.as<uint32_t>();
    heap.signals.wait = {ranks_[rank].progress.as<device::Progress>(), ranks_[rank].status.as<device::Status>(), timeout_ns_};
    heap.signals.rank = rank;
    heap.signals.world = world_;
    heap.channels = kChannels;
    return heap;
  }
  /// A place in a rank's heap.
  template <class T>
  T* at(uint32_t rank, uint64_t offset) {
    return reinterpret_cast<T*>(ranks_[rank].heap.as() + offset);
  }
  const device::Status& status(uint32_t rank) { return *ranks_[rank].status.as<device::Status>(); }
  /// Runs a kernel on every rank, in blocks of `threads` threads.
  template <class Args>
  void run(uint32_t blocks, uint32_t threads, void (*kernel)(const Args&), const std::vector<Args>& args) {
    std::vector<std::vector<Launch>> launches(world_);
    for (uint32_t rank = 0; rank < world_; ++rank) {
      launches[rank] = {{[kernel, &args, rank] { kernel(args[rank]); }, {blocks, threads, 16, 0}}};
    }
    launcher::run(launches);
  }

 private:
  struct Rank {
    static constexpr size_t kPadBytes = kChannels * device::kMaxWorld * 4;
    Memory heap{kHeapBytes}, pad{kPadBytes}, sent{kPadBytes}, awaited{kPadBytes};
    Memory progress{sizeof(device::Progress)}, status{sizeof(device::Status)};
  };
  uint32_t world_;
  uint64_t timeout_ns_;
  std::deque<Rank> ranks_;
};

/// The words that a kernel counts wrongs in, of all ranks.
constexpr uint64_t kWrong = 0;
/// Where kernels' data begin.
constexpr uint64_t kData = 256;

uint64_t wrong(Heaps& heaps) {
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < heaps.world(); ++rank) sum += *heaps.at<uint32_t>(rank, kWrong);
  return sum;
}

template <class Who>
void test_moves(uint32_t world, uint32_t threads, const std::vector<Move>& moves) {
  const uint32_t blocks = 2;
  Heaps heaps(world);
  std::vector<MoveArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<uint8_t>(rank, kData), heaps.at<uint32_t>(rank, kWrong), moves.data(),
                    static_cast<uint32_t>(moves.size())});
  }
  heaps.run(blocks, threads, move_all<Who>, args);
  check(wrong(heaps) == 0, "bytes arrive in their places, and no others", world, threads, wrong(heaps));
}

template <class T>
void test_typed(uint32_t world, uint32_t threads) {
  Heaps heaps(world);
  std::vector<TypedArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<uint8_t>(rank, kData), heaps.at<uint32_t>(rank, kWrong)});
  }
  heaps.run(2, threads, store_and_load<T>, args);
  check(wrong(heaps) == 0, "values of this size arrive", sizeof(T), world, threads);
}

template <class T>
void test_atomics(uint32_t world, uint32_t blocks, uint32_t threads) {
  Heaps heaps(world);
  const uint32_t all = blocks * threads;
  const uint64_t tickets = kData + sizeof(AtomicWords<T>) + 64;
  const uint64_t exchanged = tickets + all * kRounds * sizeof(T);
  std::vector<AtomicArgs<T>> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<AtomicWords<T>>(rank, kData), heaps.at<T>(rank, tickets), heaps.at<T>(rank, exchanged),
                    heaps.at<uint32_t>(rank, kWrong)});
  }
  auto& words = *heaps.at<AtomicWords<T>>(0, kData);
  words.anded = static_cast<T>(~T{0});
  words.exchanged = 42;
  heaps.run(blocks, threads, change_all<T>, args);
  check(wrong(heaps) == 0, "a bit is a thread's alone", sizeof(T), world, threads);
  const uint64_t changes = uint64_t{world} * all * kRounds;
  check(words.added == static_cast<T>(changes), "sums of all ranks are exact", sizeof(T), world, threads);
  check(words.subtracted == static_cast<T>(T{0} - static_cast<T>(3 * changes)), "differences are exact", sizeof(T), world, threads);
  check(words.summed == static_cast<T>(2 * changes), "sums that are not returned are exact", sizeof(T), world, threads);
  check(words.counted == static_cast<T>(changes), "compared changes are all made", sizeof(T), world, threads);
  check(words.xored == 0, "an even number of xors leaves nothing", sizeof(T), world, threads);
  check(words.ored == 0 && words.anded == static_cast<T>(~T{0}), "bits are back", sizeof(T), world, threads);
  std::set<T> seen;
  T least = 0, most = 0;
  std::multiset<T> given{42}, got{words.exchanged};
  for (uint32_t rank = 0; rank < world; ++rank) {
    seen.insert(heaps.at<T>(rank, tickets), heaps.at<T>(rank, tickets) + all * kRounds);
    got.insert(heaps.at<T>(rank, exchanged), heaps.at<T>(rank, exchanged) + all * kRounds);
    for (uint32_t thread = 0; thread < all; ++thread) {
      for (uint32_t round = 0; round < kRounds; ++round) {
        const T one = offer<T>(rank, thread, round);
        given.insert(one);
        least = std::min(least, one);
        most = std::max(most, one);
      }
    }
  }
  check(seen.size() == changes && *seen.rbegin() == static_cast<T>(changes - 1), "tickets are unique", sizeof(T), world, threads);
  check(words.least == least && words.most == most, "the least and the most of all", sizeof(T), world, threads);
  check(given == got, "what is exchanged is lost by nobody", sizeof(T), world, threads);
}

void test_floats(uint32_t world, uint32_t threads) {
  Heaps heaps(world);
  std::vector<FloatArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<float>(rank, kData), heaps.at<uint32_t>(rank, kWrong)});
  }
  heaps.run(1, threads, add_floats, args);
  const auto changes = static_cast<float>(world * threads * kRounds);
  check(*heaps.at<float>(0, kData) == 0.25f * changes, "floats are summed", world, threads);
  check(*heaps.at<float>(0, kData + 4) == 1.5f * changes, "floats are added", world, threads);
  check(*heaps.at<float>(0, kData + 8) == kRounds - 1, "floats are exchanged", world, threads);
  check(wrong(heaps) == 0, "floats are stored and loaded", world, threads);
}

void test_litmus(uint32_t world, uint32_t threads, uint32_t rounds, void (*kernel)(const LitmusArgs&), Announce announce, Hear hear) {
  Heaps heaps(world);
  std::vector<LitmusArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint32_t* const data = heaps.at<uint32_t>(rank, kData);
    args.push_back({heaps.of(rank), data, data + 64, heaps.at<uint32_t>(rank, kWrong), announce, hear, rounds});
  }
  heaps.run(1, threads, kernel, args);
  check(wrong(heaps) == 0, "messages come in order", threads, static_cast<uint64_t>(announce), static_cast<uint64_t>(hear));
}

/// Whether a call with arguments of these types compiles.
template <class... Arguments>
constexpr bool kPuts = requires(const Heap& heap, float* at, Arguments... arguments) {
  device::put(heap, at, at, arguments...);
};
template <class... Arguments>
constexpr bool kPutsSignal = requires(const Heap& heap, float* at, Arguments... arguments) {
  device::put_signal(heap, at, at, arguments...);
};
template <class... Arguments>
constexpr bool kStores = requires(const Heap& heap, float* at, Arguments... arguments) {
  device::store(heap, at, arguments...);
};
template <class... Arguments>
constexpr bool kSignals = requires(const Heap& heap, Arguments... arguments) {
  device::put(heap.signals, arguments...);
};
template <class... Arguments>
constexpr bool kWaits = requires(const Heap& heap, Arguments... arguments) {
  device::wait_signal(heap, arguments...);
};

// Arguments in another order, and numbers in place of a rank or a channel, do not compile.
using device::Channel;
using device::Rank;
static_assert(kPuts<Rank, uint64_t> && !kPuts<uint64_t, Rank> && !kPuts<uint32_t, uint32_t> && !kPuts<uint64_t, uint32_t>);
static_assert(kPutsSignal<Rank, uint64_t, Channel> && !kPutsSignal<uint64_t, Rank, Channel> && !kPutsSignal<Channel, uint64_t, Rank>);
static_assert(!kPutsSignal<uint64_t, uint32_t, uint32_t> && !kPutsSignal<Rank, Channel, uint64_t>);
static_assert(kStores<Rank, float> && !kStores<float, Rank> && !kStores<uint32_t, float>);
static_assert(kSignals<Rank, Channel> && !kSignals<Channel, Rank> && !kSignals<uint32_t, uint32_t>);
static_assert(kWaits<Rank, Channel> && !kWaits<Channel, Rank> && !kWaits<uint32_t, uint32_t>);

/// Waits that no rank ends, and the steps of a rank after a wait gave up.
struct GiveUpArgs {
  Heap heap;
  uint32_t* word;
  uint32_t* seen;  ///< the result of each step
  bool for_signal;
};

void give_up(const GiveUpArgs& args) {
  const Heap& heap = args.heap;
  const bool first = platform::thread() == 0;
  if (heap.signals.rank != 0) return;
  const bool untold = !first || !device::test_signal(heap, device::Rank{1}, device::Channel{5});
  const bool unset = !device::test(heap, args.word, device::Compare::kGreaterOrEqual, 1);
  bool met = true;
  if (args.for_signal) {
    met = device::wait_signal(heap, device::Rank{1}, device::Channel{5});
  } else if (first) {
    met = device::wait_until(heap, args.word, device::Rank{1}, device::Compare::kNotEqual, 0);
  }
  platform::sync_block();
  if (first) {
    args.seen[0] = untold && unset;
    args.seen[1] = met;
  }
  // It sends no more.
  device::put_signal(heap, args.word, args.word + 1, device::Rank{1}, 4, device::Channel{6});
}

void test_giving_up(bool for_signal, uint32_t threads) {
  constexpr uint64_t kTimeoutNs = 200'000'000;
  Heaps heaps(2, kTimeoutNs);
  std::vector<GiveUpArgs> args;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<uint32_t>(rank, kData), heaps.at<uint32_t>(rank, 0), for_signal});
    *heaps.at<uint32_t>(rank, kData + 4) = 77;
  }
  const auto start = std::chrono::steady_clock::now();
  heaps.run(1, threads, give_up, args);
  const auto took = std::chrono::steady_clock::now() - start;
  check(took >= std::chrono::nanoseconds(kTimeoutNs) && took < std::chrono::seconds(20), "a wait gives up in time", threads);
  const uint32_t* const seen = heaps.at<uint32_t>(0, 0);
  check(seen[0] == 1 && seen[1] == 0, "tests do not block, and waits say that they gave up", seen[0], seen[1]);
  const device::Status& status = heaps.status(0);
  check(status.code == kernels::kStatusTimeout && status.peer == 1, "the host hears whom a wait was for", status.code, status.peer);
  check(status.op == (for_signal ? kernels::kOpSignalWait : kernels::kOpHeap), "the host hears what waited", status.op);
  check(*heaps.at<uint32_t>(1, kData) == 0, "a rank that gave up sends no bytes");
  check(heaps.of(1).signals.pads[1][6 * 2] == 0, "a rank that gave up sends no signals");
}

/// All sizes up to some, and some beyond, at odd places.
std::vector<Move> moves_of(std::mt19937& random, uint32_t count) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  std::vector<Move> moves{{0, 0, 0}, {4097, 0, 0}, {4096, 16, 0}, {4097, 3, 3}, {4097, 1, 2}, {4094, 4, 8}, {1, 15, 0}};
  for (uint32_t bytes = 0; bytes < 40; bytes += 1 + below(3)) moves.push_back({bytes, below(17), below(17)});
  while (moves.size() < count) moves.push_back({below(4098), below(32), below(32)});
  return moves;
}

void test_all(std::mt19937& random) {
  struct alignas(16) Sixteen {
    uint32_t word[4];
  };
  for (uint32_t world = 1; world <= 8; ++world) {
    const uint32_t threads = random() % 2 == 0 ? 3 : 5;
    test_moves<device::Block>(world, threads, moves_of(random, 60));
    test_moves<device::Block>(world, 1, moves_of(random, 60));
    test_moves<device::Thread>(world, threads, moves_of(random, 20));
    test_moves<device::Warp>(world, threads, moves_of(random, 20));
    test_typed<uint8_t>(world, threads);
    test_typed<uint16_t>(world, threads);
    test_typed<float>(world, threads);
    test_typed<uint64_t>(world, threads);
    test_typed<Sixteen>(world, threads);
    test_atomics<uint32_t>(world, 1, threads);
    test_atomics<int32_t>(world, 2, threads);
    test_atomics<uint64_t>(world, 1, threads);
    test_atomics<int64_t>(world, 2, threads);
    test_floats(world, threads);
  }
  for (const uint32_t threads : {1u, 3u, 5u}) {
    for (uint32_t announce = 0; announce < 5; ++announce) {
      for (uint32_t hear = 0; hear < 4; ++hear) {
        const auto [how, heard] = std::pair(static_cast<Announce>(announce), static_cast<Hear>(hear));
        // ThreadSanitizer only orders a fence with another fence.
        if (kTraced && (how == Announce::kFence) != (heard == Hear::kFence)) continue;
        test_litmus(2 + random() % 2, threads, 60, pass_messages, how, heard);
      }
    }
    test_litmus(2, threads, 400, buffer_stores, Announce::kFence, Hear::kFence);
    test_giving_up(true, threads);
    test_giving_up(false, threads);
  }
}

}  // namespace
}  // namespace trial

int main() {
  std::random_device seed;
  const uint32_t number = seed();
  std::printf("seed %u\n", number);
  std::mt19937 random(number);
  trial::test_all(random);
  std::printf("%d checks, %d failures\n", trial::checks, trial::failures);
  return trial::failures == 0 ? 0 : 1;
}
