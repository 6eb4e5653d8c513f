// The memory of all ranks from inside a kernel: loads, stores, atomics, copies and signals.
//
// A function takes an address in the own heap: `mine` points into a symmetric buffer of this rank, and the memory of
// rank r is at the same place in the buffer of rank r. Device memory lives until the group is closed.
//
// Arguments have one order in all functions: heap, addresses, rank, then values, numbers of bytes and channels. A rank and a
// channel are types of their own, so that swapped arguments do not compile.
//
// No function blocks, except those whose names begin with `wait`. A wait ends at the group's deadline at the latest,
// and never traps. Blocks that wait must run concurrently with the blocks that they wait for.
//
// With SYMMETRA_CHECKED defined, an access outside the heap, or a signal on an invalid channel, does nothing but fail
// the group: the host's next call reports the error.
//
// Atomic accesses of another rank's memory, except loads and stores, need a link with native atomics: the host's
// has_native_atomics() returns whether all links have them. Without such a link they are undefined.
#pragma once
#include <type_traits>

#include "symmetra/device/bulk.cuh"
#include "symmetra/device/platform/atomics.hpp"
#include "symmetra/device/signal.cuh"

namespace symmetra::device {

using platform::Order;
using platform::Scope;

/// Whether accesses are checked.
#if defined(SYMMETRA_CHECKED)
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

/// Whether `bytes` bytes at `mine` are in the own heap.
SYMMETRA_DEVICE bool holds(const Heap& heap, const void* mine, uint64_t bytes) {
  const uint64_t offset = reinterpret_cast<uintptr_t>(mine) - reinterpret_cast<uintptr_t>(heap.base[heap.signals.rank]);
  return offset <= heap.bytes && bytes <= heap.bytes - offset;
}

/// The counterpart on rank `rank` of this rank's address `mine`.
template <class T>
SYMMETRA_DEVICE T* at(const Heap& heap, T* mine, Rank rank) {
  const uint64_t offset = reinterpret_cast<uintptr_t>(mine) - reinterpret_cast<uintptr_t>(heap.base[heap.signals.rank]);
  return reinterpret_cast<T*>(heap.base[rank.number] + offset);
}

namespace heap {

/// The counterpart on rank `rank` of `bytes` bytes at `mine`. If the memory is outside the heap, returns null and
/// reports to the host.
template <class T>
SYMMETRA_DEVICE T* place(const Heap& heap, T* mine, Rank rank, uint64_t bytes) {
  if (!kChecked || (rank.number < heap.signals.world && holds(heap, mine, bytes))) return at(heap, mine, rank);
  const uint64_t offset = reinterpret_cast<uintptr_t>(mine) - reinterpret_cast<uintptr_t>(heap.base[heap.signals.rank]);
  report(heap.signals.wait, kernels::kStatusBounds, kernels::kOpHeap, rank.number, 0, offset, bytes);
  return nullptr;
}

/// Whether the channel and the rank of a signal are valid. If not, reports to the host.
SYMMETRA_DEVICE bool has_channel(const Heap& heap, Rank rank, Channel channel) {
  const bool known = rank.number < heap.signals.world;
  if (!kChecked || (known && channel.number < heap.channels)) return true;
  report(heap.signals.wait, kernels::kStatusBounds, kernels::kOpHeap, rank.number, 0, known ? channel.number : 0,
         known ? kernels::kNoChannel : 0);
  return false;
}

template <class T>
SYMMETRA_DEVICE bool misses(const T* place) {
  return kChecked && place == nullptr;
}

template <class T>
constexpr bool kMoves = std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0;
template <class T>
constexpr bool kInteger = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
constexpr bool kNumber = kInteger<T> || std::is_same_v<T, float>;

/// A T that is not deduced from the argument.
template <class T>
using Value = std::type_identity_t<T>;

}  // namespace heap

// Loads and stores without order, of types of 1, 2, 4, 8 and 16 bytes that are aligned to their size. Signals or
// atomics must order them: no other rank may write the memory concurrently.

/// Loads the value at `mine` of rank `rank`.
template <class T>
SYMMETRA_DEVICE T load(const Heap& heap, const T* mine, Rank rank) {
  static_assert(heap::kMoves<T>, "a load moves 1, 2, 4, 8 or 16 bytes");
  const T* const place = heap::place(heap, mine, rank, sizeof(T));
  return heap::misses(place) ? T{} : platform::load<T>(place);
}
/// Stores a value at `mine` of rank `rank`.
template <class T>
SYMMETRA_DEVICE void store(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  static_assert(heap::kMoves<T>, "a store moves 1, 2, 4, 8 or 16 bytes");
  T* const place = heap::place(heap, mine, rank, sizeof(T));
  if (!heap::misses(place)) platform::store<T>(place, value);
}

// Atomic accesses of integers of 4 and 8 bytes; loads, stores, exchanges and sums of floats too. `mine` is aligned to its
// size. With a rank they access that rank's memory, at system scope. Without one they access the own memory, at any scope.

template <Order kOrder, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T load_atomic(const Heap& heap, const T* mine, Rank rank) {
  static_assert(kScope == Scope::kSystem, "memory of another rank is accessed at system scope");
  static_assert(kOrder == Order::kRelaxed || kOrder == Order::kAcquire, "a load is relaxed or acquires");
  static_assert(heap::kNumber<T>, "atomic accesses are of 4 or 8 bytes");
  const T* const place = heap::place(heap, mine, rank, sizeof(T));
  return heap::misses(place) ? T{} : platform::load_atomic<kOrder, kScope>(place);
}
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T load_atomic(const Heap& heap, const T* mine) {
  static_assert(kOrder == Order::kRelaxed || kOrder == Order::kAcquire, "a load is relaxed or acquires");
  static_assert(heap::kNumber<T>, "atomic accesses are of 4 or 8 bytes");
  const T* const place = heap::place(heap, mine, Rank{heap.signals.rank}, sizeof(T));
  return heap::misses(place) ? T{} : platform::load_atomic<kOrder, kScope>(place);
}

template <Order kOrder, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE void store_atomic(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  static_assert(kScope == Scope::kSystem, "memory of another rank is accessed at system scope");
  static_assert(kOrder == Order::kRelaxed || kOrder == Order::kRelease, "a store is relaxed or releases");
  static_assert(heap::kNumber<T>, "atomic accesses are of 4 or 8 bytes");
  T* const place = heap::place(heap, mine, rank, sizeof(T));
  if (!heap::misses(place)) platform::store_atomic<kOrder, kScope>(place, value);
}
template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void store_atomic(const Heap& heap, T* mine, heap::Value<T> value) {
  static_assert(kOrder == Order::kRelaxed || kOrder == Order::kRelease, "a store is relaxed or releases");
  static_assert(heap::kNumber<T>, "atomic accesses are of 4 or 8 bytes");
  T* const place = heap::place(heap, mine, Rank{heap.signals.rank}, sizeof(T));
  if (!heap::misses(place)) platform::store_atomic<kOrder, kScope>(place, value);
}

namespace heap {

using platform::Fetch;

/// Changes a word of a rank, and returns its previous value.
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch(const Heap& heap, T* mine, Rank rank, T value) {
  constexpr bool kFloats = kFetch == Fetch::kAdd || kFetch == Fetch::kExchange;
  static_assert(kInteger<T> || (kFloats && kNumber<T>), "atomic accesses are of integers of 4 or 8 bytes; exchange and add also of f32");
  T* const at = place(heap, mine, rank, sizeof(T));
  return misses(at) ? T{} : platform::fetch<kFetch, kOrder, kScope>(at, value);
}
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch_theirs(const Heap& heap, T* mine, Rank rank, T value) {
  static_assert(kScope == Scope::kSystem, "memory of another rank is accessed at system scope");
  return fetch<kFetch, kOrder, kScope>(heap, mine, rank, value);
}
template <Fetch kFetch, Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE T fetch_mine(const Heap& heap, T* mine, T value) {
  return fetch<kFetch, kOrder, kScope>(heap, mine, Rank{heap.signals.rank}, value);
}

/// The number that a subtraction of `value` adds.
template <class T>
SYMMETRA_DEVICE T negative(T value) {
  if constexpr (std::is_same_v<T, float>) return -value;
  using Unsigned = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return static_cast<T>(Unsigned{0} - static_cast<Unsigned>(value));
}

}  // namespace heap

// These functions change a word and return its previous value.

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_add(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kAdd, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_add(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kAdd, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_sub(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kAdd, kOrder, kScope>(heap, mine, rank, heap::negative(value));
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_sub(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kAdd, kOrder, kScope>(heap, mine, heap::negative(value));
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_and(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kAnd, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_and(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kAnd, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_or(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kOr, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_or(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kOr, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_xor(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kXor, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_xor(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kXor, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_min(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kMin, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_min(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kMin, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_max(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kMax, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T fetch_max(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kMax, kOrder, kScope>(heap, mine, value);
}

template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T exchange(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  return heap::fetch_theirs<heap::Fetch::kExchange, kOrder, kScope>(heap, mine, rank, value);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE T exchange(const Heap& heap, T* mine, heap::Value<T> value) {
  return heap::fetch_mine<heap::Fetch::kExchange, kOrder, kScope>(heap, mine, value);
}

namespace heap {

template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE void add(const Heap& heap, T* mine, Rank rank, T value) {
  static_assert(kOrder == Order::kRelaxed || kOrder == Order::kRelease, "a sum that is not returned is relaxed or releases");
  static_assert(kNumber<T>, "atomic accesses are of 4 or 8 bytes");
  T* const at = place(heap, mine, rank, sizeof(T));
  if (!misses(at)) platform::add_atomic<kOrder, kScope>(at, value);
}

template <Order kOrder, Scope kScope, class T>
SYMMETRA_DEVICE bool compare_exchange(const Heap& heap, T* mine, Rank rank, T& expected, T desired) {
  static_assert(kInteger<T>, "compared are integers of 4 or 8 bytes");
  T* const at = place(heap, mine, rank, sizeof(T));
  if (misses(at)) return false;
  const T before = platform::compare_exchange<kOrder, kScope>(at, expected, desired);
  const bool stored = before == expected;
  expected = before;
  return stored;
}

}  // namespace heap

/// Adds without returning a value, which is faster.
template <Order kOrder = Order::kRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE void add(const Heap& heap, T* mine, Rank rank, heap::Value<T> value) {
  static_assert(kScope == Scope::kSystem, "memory of another rank is accessed at system scope");
  heap::add<kOrder, kScope, T>(heap, mine, rank, value);
}
template <Order kOrder = Order::kRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE void add(const Heap& heap, T* mine, heap::Value<T> value) {
  heap::add<kOrder, kScope, T>(heap, mine, Rank{heap.signals.rank}, value);
}

/// Stores `desired` if the word equals `expected`. Otherwise returns false and sets `expected` to the current value.
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE bool compare_exchange(const Heap& heap, T* mine, Rank rank, heap::Value<T>& expected, heap::Value<T> desired) {
  static_assert(kScope == Scope::kSystem, "memory of another rank is accessed at system scope");
  return heap::compare_exchange<kOrder, kScope, T>(heap, mine, rank, expected, desired);
}
template <Order kOrder = Order::kAcquireRelease, Scope kScope = Scope::kSystem, class T>
SYMMETRA_DEVICE bool compare_exchange(const Heap& heap, T* mine, heap::Value<T>& expected, heap::Value<T> desired) {
  return heap::compare_exchange<kOrder, kScope, T>(heap, mine, Rank{heap.signals.rank}, expected, desired);
}

/// Orders the accesses before and after the call among all threads of the scope: of two threads that each store, call
/// this function and load the value that the other stored, at least one sees it.
template <Scope kScope = Scope::kSystem>
SYMMETRA_DEVICE void fence() {
  platform::fence<kScope>();
}

// Copies of bytes of any alignment. Threads, a warp or a block call them together, and each thread copies a part: a
// sync must follow before a thread reads bytes that others copied. Copies have no order: publish them by signals or
// atomics.

/// Copies from `theirs` of rank `rank` to `to`, which is any device memory of this rank.
template <class Who = Block>
SYMMETRA_DEVICE void get(const Heap& heap, void* to, const void* theirs, Rank rank, uint64_t bytes) {
  const void* const from = heap::place(heap, theirs, rank, bytes);
  if (!heap::misses(from)) bulk::copy<Who>(to, from, bytes);
}
/// Copies from `from`, which is any device memory of this rank, to `theirs` of rank `rank`.
template <class Who = Block>
SYMMETRA_DEVICE void put(const Heap& heap, void* theirs, const void* from, Rank rank, uint64_t bytes) {
  void* const to = heap::place(heap, theirs, rank, bytes);
  if (!heap::misses(to)) bulk::copy<Who>(to, from, bytes);
}
/// Copies from `from` of rank `from_rank` to `to` of rank `to_rank`.
template <class Who = Block>
SYMMETRA_DEVICE void copy(const Heap& heap, void* to, Rank to_rank, const void* from, Rank from_rank, uint64_t bytes) {
  void* const into = heap::place(heap, to, to_rank, bytes);
  const void* const source = heap::place(heap, from, from_rank, bytes);
  if (!heap::misses(into) && !heap::misses(source)) bulk::copy<Who>(into, source, bytes);
}

// Signals, as in symmetra/device/signal.cuh, on the heap's pad, which has Heap::channels channels. At any time, only
// one thread, warp or block may put to a rank on a channel, and only one may wait for a rank on a channel.

/// A put, followed by a signal to `rank` on `channel`. A thread that waits for the signal sees the bytes, and all
/// earlier writes of `Who`. A rank that has given up sends neither, because its data cannot be trusted.
template <class Who = Block>
SYMMETRA_DEVICE void put_signal(const Heap& heap, void* theirs, const void* from, Rank rank, uint64_t bytes, Channel channel) {
  const bool sends = heap::has_channel(heap, rank, channel);
  if (sends && platform::load_relaxed(&heap.signals.wait.progress->failed) == 0) put<Who>(heap, theirs, from, rank, bytes);
  // One thread's release covers the earlier writes of the other threads of Who.
  Who::sync();
  if (sends && Who::number() == 0) put(heap.signals, rank, channel);
}

/// Waits for one more signal of `peer` on `channel`. Then all threads of Who see the earlier writes of the peer.
/// Returns false, on all threads alike, when the wait gave up: the data are not there, and the host finds the reason.
/// On the CPU a block of several threads needs platform::host::kReservedSharedBytes of shared memory, which every
/// launch by the library has.
template <class Who = Block>
SYMMETRA_DEVICE bool wait_signal(const Heap& heap, Rank peer, Channel channel) {
  const bool met = Who::number() != 0 || (heap::has_channel(heap, peer, channel) && wait(heap.signals, peer, channel));
  return !Who::sync_or(!met);
}

/// Whether a wait for one more signal of `peer` on `channel` would end at once. Called by the thread that will wait. If
/// true, the thread sees the peer's data, but must still wait for the signal.
SYMMETRA_DEVICE bool test_signal(const Heap& heap, Rank peer, Channel channel) {
  if (!heap::has_channel(heap, peer, channel)) return false;
  const uint32_t slot = channel.number * heap.signals.world + peer.number;
  const uint32_t count = platform::load_acquire(heap.signals.pads[heap.signals.rank] + slot);
  return static_cast<int32_t>(count - heap.signals.awaited[slot]) > 0;
}

// Waits for values.

enum class Compare { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

namespace heap {

template <class T>
SYMMETRA_DEVICE bool holds_true(Compare compare, T left, T right) {
  switch (compare) {
    case Compare::kEqual:
      return left == right;
    case Compare::kNotEqual:
      return left != right;
    case Compare::kLess:
      return left < right;
    case Compare::kLessOrEqual:
      return left <= right;
    case Compare::kGreater:
      return left > right;
    default:
      return left >= right;
  }
}

}  // namespace heap

/// Whether the own word at `mine` compares with `value` in the given way. Acquires, and does not block.
template <class T>
SYMMETRA_DEVICE bool test(const Heap& heap, const T* mine, Compare compare, heap::Value<T> value) {
  return heap::holds_true<T>(compare, load_atomic<Order::kAcquire, Scope::kSystem>(heap, mine), value);
}

/// Waits until the own word at `mine` compares with `value` in the given way. Called by one thread; acquires. `peer` is
/// the rank that is reported when the wait gives up. Returns false when the wait gave up; the host finds the reason.
template <class T>
SYMMETRA_DEVICE bool wait_until(const Heap& heap, const T* mine, Rank peer, Compare compare, heap::Value<T> value) {
  const bool failed = platform::load_relaxed(&heap.signals.wait.progress->failed) != 0;
  Waiter waiter(heap.signals.wait, kernels::kOpHeap, static_cast<uint32_t>(value), failed);
  return waiter.until(peer.number, [&] { return test(heap, mine, compare, value); });
}

}  // namespace symmetra::device
