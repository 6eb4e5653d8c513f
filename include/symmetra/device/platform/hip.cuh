// The platform of the kernels on AMD GPUs: gfx90a (MI200) and gfx942 (MI300), wavefronts of 64. Needs only clang's
// builtins for the architecture, nothing of ROCm.
//
// Memory orders follow LLVM's memory model for the chip (AMDGPUUsage, "Memory Model"). Two rules make inline assembly
// safe next to code that the compiler schedules. The compiler does not see accesses in assembly, so code that must come
// after them waits for them itself. A store of 16 bytes is followed by one idle slot before its registers may change.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

// Local to the translation unit: otherwise the host-side stub of a kernel would collide with the stub of another
// platform's kernel of equal name.
#define SYMMETRA_KERNEL static __attribute__((global))
#define SYMMETRA_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define SYMMETRA_ARGS(Type) const Type
#define SYMMETRA_MOST_THREADS(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define SYMMETRA_BLOCKS_AT_ONCE(threads, blocks) SYMMETRA_MOST_THREADS(threads)
#define SYMMETRA_UNROLL _Pragma("unroll")
#define SYMMETRA_ROLLED _Pragma("unroll 1")
#define SYMMETRA_ZERO_ON_HOST

// Scope bits of an access that goes past all caches to memory that every agent of the host sees.
#if defined(__gfx942__) || defined(__gfx950__)
#define SYMMETRA_SYSTEM_SCOPE " sc0 sc1"
#define SYMMETRA_WRITE_BACK "buffer_wbl2 sc0 sc1\n\t"
#define SYMMETRA_WRITE_BACK_DEVICE "buffer_wbl2 sc1\n\t"
#define SYMMETRA_RELEASED_STORE " sc0 sc1"
#else
#define SYMMETRA_SYSTEM_SCOPE " glc slc"
#define SYMMETRA_WRITE_BACK "buffer_wbl2\n\t"
#define SYMMETRA_WRITE_BACK_DEVICE ""
#define SYMMETRA_RELEASED_STORE ""
#endif

namespace symmetra::platform {

namespace hip {

/// A pointer that is known to be global: accesses through generic pointers first find out which memory is meant.
template <class T>
using Global = T __attribute__((address_space(1)))*;

/// The type that moves 16 bytes at once.
typedef uint32_t Words4 __attribute__((ext_vector_type(4)));

/// Threads per wavefront, and most wavefronts per block.
constexpr uint32_t kWave = 64, kMostWaves = 16;

/// Nanoseconds per tick of the constant clock: 100 MHz on all chips of the GFX9 family.
constexpr uint64_t kTickNs = 10;

/// Waits until all reads and writes of this wavefront have completed.
SYMMETRA_DEVICE void wait_for_memory() { asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory"); }

}  // namespace hip

/// Polls between two checks of the deadline.
constexpr uint32_t kSpinsPerCheck = 256;
/// Polls before the first check of a wait.
constexpr uint32_t kFirstPolls = kSpinsPerCheck;

SYMMETRA_DEVICE uint32_t thread() { return __builtin_amdgcn_workitem_id_x(); }
SYMMETRA_DEVICE uint32_t threads() { return __builtin_amdgcn_workgroup_size_x(); }
SYMMETRA_DEVICE uint32_t block() { return __builtin_amdgcn_workgroup_id_x(); }
SYMMETRA_DEVICE uint32_t blocks() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }

/// A word of a packet region that has not been written since the region was allocated.
constexpr uint32_t kFreshWord = 0xFFFFFFFF;

/// Threads of a team, half a wavefront. Thread t of a block belongs to team t / kTeam.
constexpr uint32_t kTeam = 32;

/// Packets a thread reads from all ranks before it waits for the first.
constexpr uint32_t kLoadsInFlight = 16;

/// Distributes items 0, 1, 2... over the threads of the block, which has at least one thread per item. A value that
/// depends only on the item is computed once.
template <class Body>
SYMMETRA_DEVICE void each(uint32_t items, Body body) {
  if (thread() < items) body(thread());
}

/// Distributes items over the threads of the block, with derived values: a thread computes `make(item)` once, at
/// construction.
template <class Make>
class Items {
 public:
  SYMMETRA_DEVICE Items(uint32_t items, Make make) : mine_(thread() < items), item_{} {
    if (mine_) item_ = make(thread());
  }
  template <class Body>
  SYMMETRA_DEVICE void each(Body body) const {
    if (mine_) body(item_);
  }

 private:
  bool mine_;
  decltype(std::declval<Make>()(0u)) item_;
};

/// Does nothing here; on NVIDIA GPUs it computes `value` early. Values that all lanes share lie in scalar registers,
/// and only the compiler knows which these are.
template <class T>
SYMMETRA_DEVICE void keep(T&) {}

template <class T>
SYMMETRA_DEVICE T* shared() {
  extern __attribute__((shared)) __attribute__((aligned(16))) uint8_t block_shared[];
  return reinterpret_cast<T*>(block_shared);
}

/// `shared`, for kernels that use it throughout.
template <class T>
SYMMETRA_DEVICE T* kept_shared() {
  return shared<T>();
}

/// A fence of the block alone leaves stores of other wavefronts in flight, and one thread's release after the barrier
/// would not wait for them. So every wavefront waits for its own.
SYMMETRA_DEVICE void sync_block() {
  hip::wait_for_memory();
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/// A sync_block that returns to every thread whether any thread voted true.
SYMMETRA_DEVICE bool sync_block_or(bool vote) {
  static __attribute__((shared)) uint32_t votes[hip::kMostWaves];
  const uint32_t waves = (threads() + hip::kWave - 1) / hip::kWave;
  votes[thread() / hip::kWave] = __builtin_amdgcn_uicmp(vote, 0, 33) != 0;  // 33: not equal; one bit per lane
  sync_block();
  uint32_t any = 0;
  for (uint32_t i = 0; i < waves; ++i) any |= votes[i];
  sync_block();  // all threads have read the votes
  return any != 0;
}

namespace hip {

/// The `value` that thread number `thread` of the same wavefront passes.
SYMMETRA_DEVICE uint32_t of_lane(uint32_t thread, uint32_t value) {
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(static_cast<int>(thread % kWave * 4), static_cast<int>(value)));
}

}  // namespace hip

/// A sync of the threads of a team, all of which call it. It orders their accesses to block-shared memory. Threads of a
/// wavefront run in lockstep, so only the compiler must keep the order.
SYMMETRA_DEVICE void sync_team() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
/// A sync_team that returns to every thread whether any thread of the team voted true.
SYMMETRA_DEVICE bool sync_team_or(bool vote) {
  sync_team();
  const uint64_t votes = __builtin_amdgcn_uicmp(vote, 0, 33);  // 33: not equal; one bit per lane
  return static_cast<uint32_t>(votes >> (thread() & kTeam)) != 0;
}
/// The largest value among `run` consecutive threads of a team. `run` is a power of two, at most kTeam.
SYMMETRA_DEVICE uint32_t team_max(uint32_t run, uint32_t value) {
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) {
    if (step >= run) break;
    const uint32_t other = hip::of_lane(thread() ^ step, value);
    value = other > value ? other : value;
  }
  return value;
}

/// The sum of the values of the threads of a team that come before this one.
SYMMETRA_DEVICE uint32_t team_before(uint32_t value) {
  uint32_t all = value;
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) {
    const uint32_t other = hip::of_lane(thread() - step, all);
    all += thread() % kTeam >= step ? other : 0;
  }
  return all - value;
}

/// The value of thread `from` of the team. All threads of the team call it.
SYMMETRA_DEVICE uint32_t team_get(uint32_t value, uint32_t from) { return hip::of_lane(from, value); }

/// The sum over a team, as a tree of neighbours.
SYMMETRA_DEVICE float team_sum(float value) {
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) {
    value += __builtin_bit_cast(float, hip::of_lane(thread() ^ step, __builtin_bit_cast(uint32_t, value)));
  }
  return value;
}

/// This platform has no dependent launch: a kernel starts when the previous one has ended.
SYMMETRA_DEVICE void wait_prior() {}
SYMMETRA_DEVICE void release_next() {}

SYMMETRA_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }
/// A pause of microseconds, for a thread whose delay costs nothing.
SYMMETRA_DEVICE void nap() { __builtin_amdgcn_s_sleep(127); }
/// Called between two checks of a wait. Returns how many polls come before the next check. On a CPU a long wait sleeps
/// here; on a GPU a waiting block keeps its place.
SYMMETRA_DEVICE uint32_t rest(uint64_t) { return kSpinsPerCheck; }
/// On a CPU, wakes peers that sleep, and may sleep until peers wake this thread.
template <class Arrived>
SYMMETRA_DEVICE void sleep(uint32_t, const void*, Arrived&) {}
SYMMETRA_DEVICE uint64_t now_ns() { return __builtin_amdgcn_s_memrealtime() * hip::kTickNs; }

// Memory that peers or the host access concurrently. Every access is at system scope.

/// A packet: 16 bytes, written and read as two halves, each of which is atomic.
struct alignas(16) Packet {
  uint64_t half[2];
};

template <class T>
SYMMETRA_DEVICE T load_relaxed(const T* p) {
  return __hip_atomic_load((hip::Global<const T>)p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T>
SYMMETRA_DEVICE void store_relaxed(T* p, T value) {
  __hip_atomic_store((hip::Global<T>)p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
SYMMETRA_DEVICE uint32_t load_acquire(const uint32_t* p) {
  return __hip_atomic_load((hip::Global<const uint32_t>)p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// Writes back the second-level cache, waits for that and for packets stored by store_packet, then stores. It is one
/// piece of assembly, because the compiler omits the wait when it sees no store before.
SYMMETRA_DEVICE void store_release(uint32_t* p, uint32_t value) {
  asm volatile(SYMMETRA_WRITE_BACK "s_waitcnt vmcnt(0) lgkmcnt(0)\n\tglobal_store_dword %0, %1, off" SYMMETRA_RELEASED_STORE ::"v"(p),
               "v"(value)
               : "memory");
}
namespace hip {

/// The part of a release that precedes its own access, at system scope and at device scope. It is one piece of
/// assembly, as in store_release.
SYMMETRA_DEVICE void release_system() { asm volatile(SYMMETRA_WRITE_BACK "s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory"); }
SYMMETRA_DEVICE void release_device() { asm volatile(SYMMETRA_WRITE_BACK_DEVICE "s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory"); }

}  // namespace hip

/// Releases the work before this kernel on its stream. The runtime may end kernels of a stream with a write-back for
/// this device only, so the kernel boundary is not enough here.
SYMMETRA_DEVICE void store_release_prior(uint32_t* p, uint32_t value) { store_release(p, value); }
SYMMETRA_DEVICE uint32_t exchange_relaxed(uint32_t* p, uint32_t value) {
  return __hip_atomic_exchange((hip::Global<uint32_t>)p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// Adds one to a word of the own device, and returns its previous value.
SYMMETRA_DEVICE uint32_t take_relaxed(uint32_t* p) {
  return __hip_atomic_fetch_add((hip::Global<uint32_t>)p, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SYMMETRA_DEVICE void add_relaxed(uint64_t* p, uint64_t value) {
  __hip_atomic_fetch_add((hip::Global<uint64_t>)p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// Volatile, which the memory model makes a system-scope access that is never split.
SYMMETRA_DEVICE Packet load_packet(const Packet* p) {
  const hip::Words4 words = *(hip::Global<const volatile hip::Words4>)p;
  return {{uint64_t{words.y} << 32 | words.x, uint64_t{words.w} << 32 | words.z}};
}
SYMMETRA_DEVICE void store_packet(Packet* p, const Packet& packet) {
  const hip::Words4 words{static_cast<uint32_t>(packet.half[0]), static_cast<uint32_t>(packet.half[0] >> 32),
                          static_cast<uint32_t>(packet.half[1]), static_cast<uint32_t>(packet.half[1] >> 32)};
  asm volatile("global_store_dwordx4 %0, %1, off" SYMMETRA_SYSTEM_SCOPE "\n\ts_nop 0" ::"v"(p), "v"(words) : "memory");
}
/// Stores two words, each of which is atomic. A packet would need four consecutive registers.
SYMMETRA_DEVICE void store_pair(uint64_t* p, uint64_t first, uint64_t second) {
  store_relaxed(p, first);
  store_relaxed(p + 1, second);
}

// Memory that is not accessed concurrently.

namespace hip {

/// The type that moves a T in one access.
template <class T>
using Bits = std::conditional_t<
    sizeof(T) == 16, Words4,
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>>;

}  // namespace hip

/// `p` is aligned for T.
template <class T>
SYMMETRA_DEVICE T load(const void* p) {
  return __builtin_bit_cast(T, *(hip::Global<const hip::Bits<T>>)p);
}
template <class T>
SYMMETRA_DEVICE void store(void* p, const T& value) {
  *(hip::Global<hip::Bits<T>>)p = __builtin_bit_cast(hip::Bits<T>, value);
}
/// Block-shared memory, which may also be accessed as other types.
template <class T>
SYMMETRA_DEVICE T load_shared(const void* p) {
  typedef hip::Bits<T> __attribute__((may_alias)) Any;
  const hip::Bits<T> bits = *static_cast<const Any*>(p);
  return __builtin_bit_cast(T, bits);
}
template <class T>
SYMMETRA_DEVICE void store_shared(void* p, const T& value) {
  typedef hip::Bits<T> __attribute__((may_alias)) Any;
  *static_cast<Any*>(p) = __builtin_bit_cast(hip::Bits<T>, value);
}

/// Adds to a word of block-shared memory. The order among threads is unspecified.
SYMMETRA_DEVICE void add_shared(uint32_t* p, uint32_t value) {
  __hip_atomic_fetch_add(p, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// Numbers. Conversions round to nearest even and give the NaN that other platforms give.

struct Pair {
  float low, high;
};

/// The logarithm of a power of two.
SYMMETRA_DEVICE uint32_t log2_of(uint32_t power) { return static_cast<uint32_t>(__builtin_ctz(power)); }

SYMMETRA_DEVICE float f32_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
SYMMETRA_DEVICE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
SYMMETRA_DEVICE double f64_of(uint32_t low, uint32_t high) { return __builtin_bit_cast(double, uint64_t{high} << 32 | low); }
SYMMETRA_DEVICE uint64_t bits_of(double value) { return __builtin_bit_cast(uint64_t, value); }

// Arithmetic in which every step is rounded, to nearest even. The build passes -ffp-contract=off, and clang divides
// correctly rounded for HIP.

SYMMETRA_DEVICE float add(float a, float b) { return a + b; }
SYMMETRA_DEVICE float multiply(float a, float b) { return a * b; }
SYMMETRA_DEVICE float divide(float a, float b) { return a / b; }
SYMMETRA_DEVICE float reciprocal(float a) { return 1.0f / a; }
/// `sum` plus a product. The product is exact in a float, so it need not be rounded separately.
SYMMETRA_DEVICE float add_exact_product(float a, float b, float sum) { return __builtin_fmaf(a, b, sum); }
/// The chip's root is off by at most one step. A root s is too large if s times the number below it exceeds a, and too
/// small if s times the number above it is less than a: the midpoints to its neighbours differ from the square roots of
/// these products by less than any root of a float can. A fused multiply-add gives the sign of each difference.
SYMMETRA_DEVICE float square_root(float a) {
  const bool tiny = a < 0x1p-96f;  // the differences would be denormal
  const float scaled = tiny ? a * 0x1p32f : a, root = __builtin_amdgcn_sqrtf(scaled);
  const float below = f32_of(bits_of(root) - 1), above = f32_of(bits_of(root) + 1);
  float rounded = __builtin_fmaf(-below, root, scaled) <= 0 ? below : root;
  if (__builtin_fmaf(-above, root, scaled) > 0) rounded = above;
  if (!(scaled > 0) || bits_of(scaled) == 0x7F800000) return root;  // zeros, infinity, NaN: exact
  return tiny ? rounded * 0x1p-16f : rounded;
}

namespace hip {

SYMMETRA_DEVICE uint32_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
SYMMETRA_DEVICE float from_f16(uint32_t half) { return __builtin_bit_cast(_Float16, static_cast<uint16_t>(half)); }
SYMMETRA_DEVICE uint32_t to_f16(float value) {
  return value != value ? 0x7FFF : __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}

}  // namespace hip

SYMMETRA_DEVICE Pair unpack_bf16(uint32_t word) { return {f32_of(word << 16), f32_of(word & 0xFFFF0000)}; }
SYMMETRA_DEVICE uint32_t pack_bf16(Pair pair) { return hip::to_bf16(pair.low) | hip::to_bf16(pair.high) << 16; }
SYMMETRA_DEVICE Pair unpack_f16(uint32_t word) { return {hip::from_f16(word & 0xFFFF), hip::from_f16(word >> 16)}; }
SYMMETRA_DEVICE uint32_t pack_f16(Pair pair) { return hip::to_f16(pair.low) | hip::to_f16(pair.high) << 16; }

}  // namespace symmetra::platform

#undef SYMMETRA_SYSTEM_SCOPE
#undef SYMMETRA_WRITE_BACK
#undef SYMMETRA_WRITE_BACK_DEVICE
#undef SYMMETRA_RELEASED_STORE
