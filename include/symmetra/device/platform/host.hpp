// The platform of the kernels on a CPU: a device thread is an OS thread, a block's sync a std::barrier, an atomic
// access a std::atomic_ref with the requested order.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>

#include "symmetra/device/platform/adds.hpp"
#include "symmetra/device/platform/host_threads.hpp"

#define SYMMETRA_MULTICASTS
#define SYMMETRA_KERNEL inline
#define SYMMETRA_DEVICE inline
#define SYMMETRA_ARGS(Type) const Type&
#define SYMMETRA_MOST_THREADS(threads)
#define SYMMETRA_BLOCKS_AT_ONCE(threads, blocks)
#define SYMMETRA_UNROLL
#define SYMMETRA_ROLLED
/// Follows a member that threads write before every read: the host's compilers do not see that through the waits, and
/// warn. On GPUs an initial value would cost instructions.
#define SYMMETRA_ZERO_ON_HOST = {}

namespace symmetra::platform {

/// Polls before the first check of a wait, and between two checks while the thread yields. Peers may sleep until they
/// receive the data that this thread stored, so the first check, which wakes them, comes at once.
constexpr uint32_t kFirstPolls = 1, kSpinsPerCheck = 64;

SYMMETRA_DEVICE uint32_t thread() { return host::current.thread; }
SYMMETRA_DEVICE uint32_t threads() { return host::current.threads; }
SYMMETRA_DEVICE uint32_t block() { return host::current.block; }
SYMMETRA_DEVICE uint32_t blocks() { return host::current.blocks; }

/// A word of a packet region that has not been written since the region was allocated. The operating system provides
/// zeroed memory, so a page of a region is not touched before a packet needs it.
constexpr uint32_t kFreshWord = 0;

/// Threads of a team: threads of a block do not run in lockstep.
constexpr uint32_t kTeam = 1;

/// Packets that a thread reads from all ranks before it waits for the first. A CPU prefetches by itself and prefers
/// sequential reads.
constexpr uint32_t kLoadsInFlight = 1;

/// Distributes items 0, 1, 2... over the threads of the block, each thread in ascending order.
template <class Body>
SYMMETRA_DEVICE void each(uint32_t items, Body body) {
  for (uint32_t item = thread(); item < items; item += threads()) body(item);
}

/// Distributes items over the threads of the block, with derived values from `make(item)`.
template <class Make>
class Items {
 public:
  SYMMETRA_DEVICE Items(uint32_t items, Make make) : items_(items), make_(make) {}
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    platform::each(items_, [&](uint32_t item) { body(make_(item)); });
  }

 private:
  uint32_t items_;
  Make make_;
};

/// Does nothing here; on NVIDIA GPUs it computes `value` early.
template <class T>
SYMMETRA_DEVICE void keep(T&) {}

template <class T>
SYMMETRA_DEVICE T* shared() {
  return reinterpret_cast<T*>(host::current.shared + host::kReservedSharedBytes);
}

/// `shared`, for kernels that use it throughout.
template <class T>
SYMMETRA_DEVICE T* kept_shared() {
  return shared<T>();
}

SYMMETRA_DEVICE void sync_block() {
  if (host::current.threads == 1) return;
  // Another thread of the block may wait for a peer that sleeps until it receives the data that this thread stored.
  if (host::current.doorbell != nullptr) host::current.doorbell->ring();
  host::current.barrier->arrive_and_wait();
}

/// A sync_block that returns to every thread whether any thread voted true.
SYMMETRA_DEVICE bool sync_block_or(bool vote) {
  if (host::current.threads == 1) return vote;
  std::atomic_ref<uint32_t> any(*reinterpret_cast<uint32_t*>(host::current.shared));
  sync_block();  // all threads have read the previous vote
  if (host::current.thread == 0) any.store(0, std::memory_order_relaxed);
  sync_block();
  if (vote) any.store(1, std::memory_order_relaxed);
  sync_block();
  return any.load(std::memory_order_relaxed) != 0;
}

/// A sync of the threads of a team, here one.
SYMMETRA_DEVICE void sync_team() {}
/// A sync_team that returns to every thread whether any thread of the team voted true.
SYMMETRA_DEVICE bool sync_team_or(bool vote) { return vote; }
/// The largest value among `run` consecutive threads of a team, here one.
SYMMETRA_DEVICE uint32_t team_max(uint32_t, uint32_t value) { return value; }

/// The sum of the values of the threads of a team that come before this one, here none.
SYMMETRA_DEVICE uint32_t team_before(uint32_t) { return 0; }
SYMMETRA_DEVICE uint32_t team_get(uint32_t value, uint32_t) { return value; }

/// The sum over a team, as a tree of neighbours.
SYMMETRA_DEVICE float team_sum(float value) { return value; }

/// The host has no dependent launch: a kernel starts when the previous one has ended.
SYMMETRA_DEVICE void wait_prior() {}
SYMMETRA_DEVICE void release_next() {}

SYMMETRA_DEVICE uint64_t now_ns() { return host::now_ns(); }

SYMMETRA_DEVICE void pause() { host::yields.yield(); }
/// A pause for a thread whose delay costs nothing.
SYMMETRA_DEVICE void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
/// Called between two checks of a wait that has lasted `waited_ns`. Returns the number of polls before the next check.
/// A short wait only yields, unless yields are long. A long wait sleeps on the doorbell (see `sleep`). Without a
/// doorbell the wait sleeps here for a sixteenth of the time waited, which frees the core for others and delays the end
/// of the wait only slightly.
SYMMETRA_DEVICE uint32_t rest(uint64_t waited_ns) {
  constexpr uint64_t kShortNs = 2'000'000, kMostNs = 1'000'000;
  host::rings = waited_ns == 0;
  // A wait of milliseconds ends at most a sixteenth later, and uses little of the core until then.
  const uint64_t most_ns = std::clamp(waited_ns / 16, host::kMostSleepNs, host::kLongestSleepNs);
  host::sleep_ns = std::clamp(waited_ns, host::kFirstSleepNs, most_ns);
  if (host::current.doorbell != nullptr && host::yields.take_sleep()) return host::kOnePoll;
  if (waited_ns <= kShortNs) return kSpinsPerCheck;
  if (host::current.doorbell != nullptr) return host::kOnePoll;
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(waited_ns / 16, kMostNs)));
  return 1;
}
/// Called before the `polls` that `rest` allows: wakes sleeping peers, and sleeps if `rest` requested it.
template <class Arrived>
SYMMETRA_DEVICE void sleep(uint32_t polls, const void* progress, Arrived& arrived) {
  const host::Doorbell* const doorbell = host::current.doorbell;
  if (doorbell == nullptr) return;
  // Once in a wait: the thread stores nothing until the wait ends. Threads that rang at each check would keep each other awake.
  if (host::rings) doorbell->ring();
  if (polls != host::kOnePoll) return;
  doorbell->sleep(
      progress, host::sleep_ns, [](void* context) { return (*static_cast<Arrived*>(context))(); }, &arrived);
}

// Memory that peers or the host access concurrently. Every access is at system scope.

/// A packet: 16 bytes, written and read as two halves, each of which is atomic.
struct alignas(16) Packet {
  uint64_t half[2] SYMMETRA_ZERO_ON_HOST;
};

template <class T>
SYMMETRA_DEVICE T load_relaxed(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_relaxed);
}
template <class T>
SYMMETRA_DEVICE void store_relaxed(T* p, T value) {
  std::atomic_ref<T>(*p).store(value, std::memory_order_relaxed);
}
SYMMETRA_DEVICE uint32_t load_acquire(const uint32_t* p) {
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(p)).load(std::memory_order_acquire);
}
SYMMETRA_DEVICE void store_release(uint32_t* p, uint32_t value) { std::atomic_ref<uint32_t>(*p).store(value, std::memory_order_release); }
/// Releases the work before this kernel on its stream. A full release, which is cheap on a CPU.
SYMMETRA_DEVICE void store_release_prior(uint32_t* p, uint32_t value) { store_release(p, value); }
SYMMETRA_DEVICE uint32_t exchange_relaxed(uint32_t* p, uint32_t value) {
  return std::atomic_ref<uint32_t>(*p).exchange(value, std::memory_order_relaxed);
}
/// Adds one to a word of the own device, and returns its previous value.
SYMMETRA_DEVICE uint32_t take_relaxed(uint32_t* p) { return std::atomic_ref<uint32_t>(*p).fetch_add(1, std::memory_order_relaxed); }
SYMMETRA_DEVICE void add_relaxed(uint64_t* p, uint64_t value) { std::atomic_ref<uint64_t>(*p).fetch_add(value, std::memory_order_relaxed); }

SYMMETRA_DEVICE Packet load_packet(const Packet* p) { return {{load_relaxed(&p->half[0]), load_relaxed(&p->half[1])}}; }
SYMMETRA_DEVICE void store_packet(Packet* p, const Packet& packet) {
  store_relaxed(&p->half[0], packet.half[0]);
  store_relaxed(&p->half[1], packet.half[1]);
}
/// Stores two words, each of which is atomic.
SYMMETRA_DEVICE void store_pair(uint64_t* p, uint64_t first, uint64_t second) {
  store_relaxed(p, first);
  store_relaxed(p + 1, second);
}

// Memory that is not accessed concurrently.

/// `p` is aligned for T.
template <class T>
SYMMETRA_DEVICE T load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <class T>
SYMMETRA_DEVICE void store(void* p, const T& value) {
  std::memcpy(p, &value, sizeof(T));
}
/// Block-shared memory, which may also be accessed as other types.
template <class T>
SYMMETRA_DEVICE T load_shared(const void* p) {
  return load<T>(p);
}
template <class T>
SYMMETRA_DEVICE void store_shared(void* p, const T& value) {
  store(p, value);
}

/// Adds to a word of block-shared memory. The order among threads is unspecified.
SYMMETRA_DEVICE void add_shared(uint32_t* p, uint32_t value) { std::atomic_ref<uint32_t>(*p).fetch_add(value, std::memory_order_relaxed); }

// Numbers. Conversions round to nearest even and give the NaN that other platforms give.

struct Pair {
  float low, high;
};

/// The logarithm of a power of two.
SYMMETRA_DEVICE uint32_t log2_of(uint32_t power) { return static_cast<uint32_t>(std::countr_zero(power)); }

SYMMETRA_DEVICE float f32_of(uint32_t bits) { return std::bit_cast<float>(bits); }
SYMMETRA_DEVICE uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
SYMMETRA_DEVICE double f64_of(uint32_t low, uint32_t high) { return std::bit_cast<double>(uint64_t{high} << 32 | low); }
SYMMETRA_DEVICE uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

// Arithmetic in which every step is rounded, to nearest even: no product and sum are fused. The build passes
// -ffp-contract=off.

SYMMETRA_DEVICE float add(float a, float b) { return a + b; }
SYMMETRA_DEVICE float multiply(float a, float b) { return a * b; }
SYMMETRA_DEVICE float divide(float a, float b) { return a / b; }
SYMMETRA_DEVICE float reciprocal(float a) { return 1.0f / a; }
/// `sum` plus a product. The product is exact in a float, so it need not be rounded separately.
SYMMETRA_DEVICE float add_exact_product(float a, float b, float sum) { return a * b + sum; }
SYMMETRA_DEVICE float square_root(float a) { return std::sqrt(a); }

namespace host {

SYMMETRA_DEVICE float from_bf16(uint32_t half) { return f32_of(half << 16); }
SYMMETRA_DEVICE uint32_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

SYMMETRA_DEVICE float from_f16(uint32_t half) {
  const uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3FF;
  if (exponent == 0) return f32_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24f));
  if (exponent == 31) return f32_of(sign | 0x7F800000 | fraction << 13);
  return f32_of(sign | (exponent + 112) << 23 | fraction << 13);
}
SYMMETRA_DEVICE uint32_t to_f16(float value) {
  if (value != value) return 0x7FFF;
  const uint32_t sign = bits_of(value) >> 16 & 0x8000;
  const uint32_t size = bits_of(value) & 0x7FFFFFFF;
  if (size >= 0x477FF000) return sign | 0x7C00;  // 65520 and more round to infinity
  if (size < 0x38800000) {                       // below 2^-14: adding 0.5 rounds at 2^-24, the step of denormals
    return sign | (bits_of(f32_of(size) + 0.5f) - bits_of(0.5f));
  }
  return sign | (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13;
}

}  // namespace host

SYMMETRA_DEVICE Pair unpack_bf16(uint32_t word) { return {host::from_bf16(word & 0xFFFF), host::from_bf16(word >> 16)}; }
SYMMETRA_DEVICE uint32_t pack_bf16(Pair pair) { return host::to_bf16(pair.low) | host::to_bf16(pair.high) << 16; }
SYMMETRA_DEVICE Pair unpack_f16(uint32_t word) { return {host::from_f16(word & 0xFFFF), host::from_f16(word >> 16)}; }
SYMMETRA_DEVICE uint32_t pack_f16(Pair pair) { return host::to_f16(pair.low) | host::to_f16(pair.high) << 16; }

namespace host {

// 8-bit floats are converted through f16, which has every value of both. e5m2 is the upper byte of an f16. The bits of
// e4m3, shifted to the exponent of an f16, are 256 times smaller. Rounding saturates, and every NaN becomes 0x7F.

SYMMETRA_DEVICE float from_e5m2(uint32_t code) { return from_f16(code << 8); }
SYMMETRA_DEVICE uint32_t to_e5m2(uint32_t half) {
  const uint32_t size = half & 0x7FFF, held = std::min(size, 0x7B00u);
  return size > 0x7C00 ? 0x7F : (half & 0x8000) >> 8 | (held + 0x7F + (held >> 8 & 1)) >> 8;
}

SYMMETRA_DEVICE float from_e4m3(uint32_t code) {
  if ((code & 0x7F) == 0x7F) return from_f16(0x7FFF);
  return from_f16((code & 0x80) << 8 | (code & 0x7F) << 7) * 256;
}
SYMMETRA_DEVICE uint32_t to_e4m3(uint32_t half) {
  const uint32_t sign = (half & 0x8000) >> 8, size = half & 0x7FFF, held = std::min(size, 0x5F00u);  // 448
  if (size > 0x7C00) return 0x7F;
  // Below 2^-6: adding 2^14 rounds at 2^-9, the step of denormals.
  if (held < 0x2400) return sign | (bits_of(from_f16(held) + 0x1p14f) - bits_of(0x1p14f));
  return sign | (held - 0x2000 + 0x3F + (held >> 7 & 1)) >> 7;
}

}  // namespace host

// Multicast accesses: to the memory at one offset of every rank's arena. `At` has the members of device::Multicast.
// Here they are separate accesses to the memory of each rank, in an order that changes from call to call, because a
// switch guarantees neither one access nor an order.

namespace host {

/// Most ranks of a multicast access.
constexpr uint32_t kMostCopies = 16;
inline thread_local uint32_t multicasts = 0;

/// Calls `visit` with the number of each rank and its memory at `at` plus `bytes`.
template <class At, class Visit>
SYMMETRA_DEVICE void each_copy(const At& at, uint64_t bytes, Visit visit) {
  const uint32_t start = multicasts++ % at.world;
  for (uint32_t step = 0; step < at.world; ++step) {
    const uint32_t rank = (start + step) % at.world;
    visit(rank, static_cast<uint8_t*>(at.table->address[rank]) + at.offset_bytes + bytes);
  }
}

/// The sum of one byte of words, in rank order: 8-bit floats, added in f16.
template <Adds kAdds>
SYMMETRA_DEVICE uint32_t sum_bytes(const uint32_t (&words)[kMostCopies][4], uint32_t world, uint32_t i, uint32_t shift) {
  constexpr auto from = kAdds == Adds::kE4M3 ? from_e4m3 : from_e5m2;
  const auto value = [&](uint32_t rank) { return from(words[rank][i] >> shift & 0xFF); };
  uint32_t total = to_f16(value(0));
  for (uint32_t rank = 1; rank < world; ++rank) total = to_f16(from_f16(total) + value(rank));
  return kAdds == Adds::kE4M3 ? to_e4m3(total) : to_e5m2(total);
}

/// The sum of words that hold values of one kind, in rank order.
template <Adds kAdds>
SYMMETRA_DEVICE void sum_words(const uint32_t (&words)[kMostCopies][4], uint32_t world, uint32_t* sum) {
  for (uint32_t i = 0; i < 4; ++i) {
    if constexpr (kAdds == Adds::kF32) {
      float total = f32_of(words[0][i]);
      for (uint32_t rank = 1; rank < world; ++rank) total += f32_of(words[rank][i]);
      sum[i] = bits_of(total);
    } else if constexpr (kAdds == Adds::kF16 || kAdds == Adds::kBF16) {
      constexpr auto unpack = kAdds == Adds::kF16 ? unpack_f16 : unpack_bf16;
      Pair total = unpack(words[0][i]);
      for (uint32_t rank = 1; rank < world; ++rank) {
        const Pair next = unpack(words[rank][i]);
        total = {total.low + next.low, total.high + next.high};
      }
      sum[i] = kAdds == Adds::kF16 ? pack_f16(total) : pack_bf16(total);
    } else if constexpr (kAdds == Adds::kE4M3 || kAdds == Adds::kE5M2) {
      sum[i] = 0;
      for (uint32_t shift = 0; shift < 32; shift += 8) sum[i] |= sum_bytes<kAdds>(words, world, i, shift) << shift;
    } else if constexpr (kAdds == Adds::kWords) {
      sum[i] = words[0][i];
      for (uint32_t rank = 1; rank < world; ++rank) sum[i] += words[rank][i];
    } else if (i % 2 == 0) {
      uint64_t total = 0;
      for (uint32_t rank = 0; rank < world; ++rank) total += uint64_t{words[rank][i + 1]} << 32 | words[rank][i];
      sum[i] = static_cast<uint32_t>(total);
      sum[i + 1] = static_cast<uint32_t>(total >> 32);
    }
  }
}

}  // namespace host

/// The sum of 16 bytes of every rank, at a multiple of 16. `Data` has four words.
template <Adds kAdds, class Data, class At>
SYMMETRA_DEVICE Data multicast_load_sum(const At& at, uint64_t bytes) {
  uint32_t words[host::kMostCopies][4];
  host::each_copy(at, bytes, [&](uint32_t rank, uint8_t* copy) {
    const Packet packet = load_packet(reinterpret_cast<const Packet*>(copy));
    std::memcpy(words[rank], &packet, sizeof(packet));
  });
  Data sum;
  host::sum_words<kAdds>(words, at.world, sum.word);
  return sum;
}
/// Stores 16 bytes on every rank, at a multiple of 16.
template <class Data, class At>
SYMMETRA_DEVICE void multicast_store(const At& at, uint64_t bytes, const Data& data) {
  Packet packet;
  std::memcpy(&packet, data.word, sizeof(packet));
  host::each_copy(at, bytes, [&](uint32_t, uint8_t* copy) { store_packet(reinterpret_cast<Packet*>(copy), packet); });
}
/// Stores a word on every rank, and releases this thread's earlier writes.
template <class At>
SYMMETRA_DEVICE void multicast_store_release(const At& at, uint64_t bytes, uint32_t value) {
  host::each_copy(at, bytes, [&](uint32_t, uint8_t* copy) { store_release(reinterpret_cast<uint32_t*>(copy), value); });
}
/// Adds to a word of every rank.
template <class At>
SYMMETRA_DEVICE void multicast_add(const At& at, uint64_t bytes, uint32_t value) {
  host::each_copy(at, bytes, [&](uint32_t, uint8_t* copy) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(copy)).fetch_add(value, std::memory_order_relaxed);
  });
}
/// Adds to a word of every rank, and releases this thread's earlier writes.
template <class At>
SYMMETRA_DEVICE void multicast_add_release(const At& at, uint64_t bytes, uint32_t value) {
  host::each_copy(at, bytes, [&](uint32_t, uint8_t* copy) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(copy)).fetch_add(value, std::memory_order_release);
  });
}

}  // namespace symmetra::platform
