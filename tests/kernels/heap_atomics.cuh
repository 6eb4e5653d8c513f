// Kernels of a user's whose ranks change one word together, and litmus tests of orders.
#pragma once
#include "tests/kernels/heap_kernel.cuh"

namespace trial {

/// The words that all ranks change, in the heap of rank 0, and the result of each change in each thread of a rank.
template <class T>
struct AtomicWords {
  T added, subtracted, summed, anded, ored, xored, least, most, exchanged, counted;
};
template <class T>
struct AtomicArgs {
  Heap heap;
  AtomicWords<T>* words;
  T* tickets;    ///< own: kRounds for each thread
  T* exchanged;  ///< own: kRounds for each thread
  uint32_t* wrong;
};
constexpr uint32_t kRounds = 20;

/// The value that a thread of a rank proposes to the minimum and the maximum.
template <class T>
SYMMETRA_DEVICE T offer(uint32_t rank, uint32_t thread, uint32_t round) {
  const auto value = static_cast<T>(rank * 1000 + thread * 100 + round);
  return thread % 2 == 0 ? value : static_cast<T>(T{0} - value);
}

/// Every atomic change of an integer. On the own rank it is also made by the functions that take no rank.
template <class T>
SYMMETRA_DEVICE void change_all(const AtomicArgs<T>& args) {
  const Heap& heap = args.heap;
  AtomicWords<T>* const words = args.words;
  const uint32_t me = unit<device::Thread>(), rank = heap.signals.rank, all = units<device::Thread>();
  const bool own = rank == 0;
  const device::Rank owner{0};
  const T bit = static_cast<T>(T{1} << ((rank * all + me) % (8 * sizeof(T))));
  uint32_t wrong = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    T* const ticket = args.tickets + me * kRounds + round;
    const T mine = offer<T>(rank, me, round);
    if (own) {
      *ticket = device::fetch_add<Order::kAcquireRelease, Scope::kSystem>(heap, &words->added, 1);
      device::fetch_sub<Order::kRelaxed>(heap, &words->subtracted, 3);
      device::add<Order::kRelease>(heap, &words->summed, 2);
      device::fetch_xor<Order::kRelaxed>(heap, &words->xored, bit);
      device::fetch_min<Order::kRelaxed>(heap, &words->least, mine);
      device::fetch_max<Order::kRelaxed>(heap, &words->most, mine);
      args.exchanged[me * kRounds + round] = device::exchange<Order::kRelaxed>(heap, &words->exchanged, mine);
    } else {
      *ticket = device::fetch_add(heap, &words->added, owner, 1);
      device::fetch_sub<Order::kAcquire>(heap, &words->subtracted, owner, 3);
      device::add(heap, &words->summed, owner, 2);
      device::fetch_xor<Order::kRelease>(heap, &words->xored, owner, bit);
      device::fetch_min(heap, &words->least, owner, mine);
      device::fetch_max(heap, &words->most, owner, mine);
      args.exchanged[me * kRounds + round] = device::exchange(heap, &words->exchanged, owner, mine);
    }
    T seen = device::load_atomic<Order::kRelaxed>(heap, &words->counted, owner);
    while (!device::compare_exchange(heap, &words->counted, owner, seen, static_cast<T>(seen + 1))) platform::pause();
    // No other thread has the bit while there are no more threads than bits.
    const bool alone = heap.signals.world * all <= 8 * sizeof(T);
    wrong += alone && (device::fetch_or(heap, &words->ored, owner, bit) & bit) != 0;
    wrong += alone && (device::fetch_and(heap, &words->ored, owner, static_cast<T>(~bit)) & bit) == 0;
    wrong += alone && (device::fetch_and<Order::kRelaxed>(heap, &words->anded, owner, static_cast<T>(~bit)) & bit) == 0;
    wrong += alone && (device::fetch_or<Order::kRelaxed>(heap, &words->anded, owner, bit) & bit) != 0;
  }
  device::add<Order::kRelaxed>(heap, args.wrong, wrong);
}

struct FloatArgs {
  Heap heap;
  float* sums;  ///< rank 0's: one by fetch_add, one by add, one exchanged
  uint32_t* wrong;
};

/// Sums of floats that are exact in every order.
SYMMETRA_DEVICE void add_floats(const FloatArgs& args) {
  const device::Rank owner{0};
  for (uint32_t round = 0; round < kRounds; ++round) {
    device::fetch_add(args.heap, args.sums, owner, 0.5f);
    device::fetch_sub<Order::kRelaxed>(args.heap, args.sums, owner, 0.25f);
    device::add<Order::kRelaxed>(args.heap, args.sums + 1, owner, 1.5f);
    device::exchange(args.heap, args.sums + 2, owner, static_cast<float>(round));
    device::store_atomic<Order::kRelease>(args.heap, args.sums + 3, owner, 7.f);
    if (device::load_atomic<Order::kAcquire>(args.heap, args.sums + 3, owner) != 7.f) device::add(args.heap, args.wrong, 1);
  }
}

/// How a message is announced, and how its arrival is detected.
enum class Announce { kStore, kAdd, kExchange, kCompare, kFence };
enum class Hear { kLoad, kAdd, kCompare, kFence };

/// How often a message is looked for: some seconds.
constexpr uint32_t kMostTries = 1 << 22;

struct LitmusArgs {
  Heap heap;
  uint32_t* data;   ///< a word for each unit
  uint32_t* flags;  ///< a word for each unit
  uint32_t* wrong;
  Announce announce;
  Hear hear;
  uint32_t rounds;
};

/// Sets the flag of `rank` to `value`, which differs from the old value. A unit that sees the new value sees all
/// earlier writes.
SYMMETRA_DEVICE void announce(const LitmusArgs& args, uint32_t* flag, device::Rank rank, uint32_t value) {
  uint32_t before = value - 1;
  switch (args.announce) {
    case Announce::kStore:
      return device::store_atomic<Order::kRelease>(args.heap, flag, rank, value);
    case Announce::kAdd:
      return device::add<Order::kRelease>(args.heap, flag, rank, 1);
    case Announce::kExchange:
      device::exchange<Order::kRelease>(args.heap, flag, rank, value);
      return;
    case Announce::kCompare:
      device::compare_exchange<Order::kAcquireRelease>(args.heap, flag, rank, before, value);
      return;
    case Announce::kFence:
      device::fence();
      device::store_atomic<Order::kRelaxed>(args.heap, flag, rank, value);
  }
}

/// Whether the own flag is `value`.
SYMMETRA_DEVICE bool hears(const LitmusArgs& args, uint32_t* flag, uint32_t value) {
  uint32_t expected = value;
  switch (args.hear) {
    case Hear::kLoad:
      return device::test(args.heap, flag, device::Compare::kEqual, value);
    case Hear::kAdd:
      return device::fetch_add<Order::kAcquire>(args.heap, flag, 0) == value;
    case Hear::kCompare:
      return device::compare_exchange<Order::kAcquire>(args.heap, flag, expected, value);
    default:
      if (device::load_atomic<Order::kRelaxed, Scope::kSystem>(args.heap, flag) != value) return false;
      device::fence();
      return true;
  }
}

/// Message passing: each thread writes plain data on the next rank and announces it.
SYMMETRA_DEVICE void pass_messages(const LitmusArgs& args) {
  const Heap& heap = args.heap;
  const uint32_t me = unit<device::Thread>(), rank = heap.signals.rank, world = heap.signals.world;
  const uint32_t previous = (rank + world - 1) % world;
  const device::Rank own{rank}, next{(rank + 1) % world};
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    device::store(heap, args.data + me, next, round * 1000 + rank);
    announce(args, args.flags + me, next, round);
    uint32_t tries = 0;
    while (!hears(args, args.flags + me, round) && ++tries < kMostTries) platform::pause();
    wrong += tries == kMostTries;
    wrong += device::load(heap, args.data + me, own) != round * 1000 + previous;
    meet<device::Thread>(heap, device::Channel{me});
  }
  device::add<Order::kRelaxed>(heap, args.wrong, wrong);
}

/// Store buffering between threads of two ranks: each stores, calls a fence, and loads the word of the other. One at least sees
/// the other's.
SYMMETRA_DEVICE void buffer_stores(const LitmusArgs& args) {
  const Heap& heap = args.heap;
  const uint32_t me = unit<device::Thread>(), rank = heap.signals.rank;
  const device::Rank own{rank}, other{1 - rank};
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    // Each rank stores in the memory of the other, so each load is of the own memory.
    device::store_atomic<Order::kRelaxed>(heap, args.data + me, other, round);
    device::fence();
    const uint32_t seen = device::load_atomic<Order::kRelaxed, Scope::kSystem>(heap, args.data + me);
    device::store(heap, args.flags + me, other, seen);
    meet<device::Thread>(heap, device::Channel{me});
    wrong += seen != round && device::load(heap, args.flags + me, own) != round;
    meet<device::Thread>(heap, device::Channel{me});
  }
  device::add<Order::kRelaxed>(heap, args.wrong, wrong);
}

}  // namespace trial
