// The platform of the kernels on NVIDIA GPUs, sm_80 and later.
#pragma once

#include <cstdint>
#include <utility>

#ifdef SYMMETRA_MULTICAST
#include "symmetra/device/platform/adds.hpp"
#define SYMMETRA_MULTICASTS
#endif

#define SYMMETRA_KERNEL __global__
#define SYMMETRA_DEVICE __device__ __forceinline__
#define SYMMETRA_ARGS(Type) const __grid_constant__ Type
#define SYMMETRA_MOST_THREADS(threads) __launch_bounds__(threads, 1)
#define SYMMETRA_BLOCKS_AT_ONCE(threads, blocks) __launch_bounds__(threads, blocks)
#define SYMMETRA_UNROLL _Pragma("unroll")
#define SYMMETRA_ROLLED _Pragma("unroll 1")
#define SYMMETRA_ZERO_ON_HOST

namespace symmetra::platform {

/// Polls between two checks of the deadline. A poll is a read of the second-level cache, about half a microsecond.
constexpr uint32_t kSpinsPerCheck = 256;
/// Polls before the first check of a wait.
constexpr uint32_t kFirstPolls = kSpinsPerCheck;

SYMMETRA_DEVICE uint32_t thread() { return threadIdx.x; }
SYMMETRA_DEVICE uint32_t threads() { return blockDim.x; }
SYMMETRA_DEVICE uint32_t block() { return blockIdx.x; }
SYMMETRA_DEVICE uint32_t blocks() { return gridDim.x; }

/// A word of a packet region that has not been written since the region was allocated.
constexpr uint32_t kFreshWord = 0xFFFFFFFF;

/// Threads of a team. Thread t of a block belongs to team t / kTeam.
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

/// 0, but the compiler does not know. It must assume that an address with this value differs between threads, so a
/// value that is computed from a load there stays in the registers of the threads. Otherwise the compiler keeps values
/// that all threads of a team share in uniform registers, whose arithmetic takes twice as long.
SYMMETRA_DEVICE uint32_t hidden_zero() { return thread() >> 10; }

/// Forces `value` to be computed here, not at its first use. While a load or a wait is pending, that costs nothing.
SYMMETRA_DEVICE void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }
template <class T>
SYMMETRA_DEVICE void keep(T*& value) {
  asm volatile("" : "+l"(value));
}

template <class T>
SYMMETRA_DEVICE T* shared() {
  extern __shared__ uint4 block_shared[];
  return reinterpret_cast<T*>(block_shared);
}

/// `shared`, whose address stays in a register. Otherwise the address is computed again at each use, which takes longer
/// than the use.
template <class T>
SYMMETRA_DEVICE T* kept_shared() {
  T* memory = shared<T>();
  asm volatile("" : "+l"(memory));
  __builtin_assume(__isShared(memory));
  return memory;
}

SYMMETRA_DEVICE void sync_block() { __syncthreads(); }
/// A sync_block that returns to every thread whether any thread voted true.
SYMMETRA_DEVICE bool sync_block_or(bool vote) { return __syncthreads_or(vote) != 0; }

/// A sync of the threads of a team, all of which call it. It orders their accesses to block-shared memory.
SYMMETRA_DEVICE void sync_team() { __syncwarp(); }
/// A sync_team that returns to every thread whether any thread of the team voted true.
SYMMETRA_DEVICE bool sync_team_or(bool vote) {
  __syncwarp();
  return __any_sync(0xFFFFFFFF, vote) != 0;
}
/// The largest value among `run` consecutive threads of a team. `run` is a power of two, at most kTeam.
SYMMETRA_DEVICE uint32_t team_max(uint32_t run, uint32_t value) {
  if (run == kTeam) return __reduce_max_sync(0xFFFFFFFF, value);
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) {
    if (step < run) value = max(value, __shfl_xor_sync(0xFFFFFFFF, value, step));
  }
  return value;
}

/// The sum of the values of the threads of a team that come before this one.
SYMMETRA_DEVICE uint32_t team_before(uint32_t value) {
  uint32_t all = value;
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFF, all, step);
    all += thread() % kTeam >= step ? other : 0;
  }
  return all - value;
}

/// The value of thread `from` of the team. All threads of the team call it.
SYMMETRA_DEVICE uint32_t team_get(uint32_t value, uint32_t from) { return __shfl_sync(0xFFFFFFFF, value, from); }

/// The sum over a team, as a tree of neighbours.
SYMMETRA_DEVICE float team_sum(float value) {
  SYMMETRA_UNROLL
  for (uint32_t step = 1; step < kTeam; step *= 2) value = __fadd_rn(value, __shfl_xor_sync(0xFFFFFFFF, value, step));
  return value;
}

/// Dependent launch: waits until all earlier kernels have ended and their writes are visible.
SYMMETRA_DEVICE void wait_prior() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Dependent launch: lets the next kernel start its setup once all blocks have called this.
SYMMETRA_DEVICE void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

SYMMETRA_DEVICE void pause() {}
/// A pause of microseconds, for a thread whose delay costs nothing.
SYMMETRA_DEVICE void nap() { asm volatile("nanosleep.u32 2000;"); }
/// Called between two checks of a wait. Returns how many polls come before the next check. On a CPU a long wait sleeps
/// here; on a GPU a waiting block keeps its place.
SYMMETRA_DEVICE uint32_t rest(uint64_t) { return kSpinsPerCheck; }
/// On a CPU, wakes peers that sleep, and may sleep until peers wake this thread.
template <class Arrived>
SYMMETRA_DEVICE void sleep(uint32_t, const void*, Arrived&) {}
SYMMETRA_DEVICE uint64_t now_ns() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

// Memory that peers or the host access concurrently. Every access is at system scope.

/// A packet: 16 bytes, written and read as two halves, each of which is atomic.
struct alignas(16) Packet {
  uint64_t half[2];
};

SYMMETRA_DEVICE uint32_t load_relaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
SYMMETRA_DEVICE uint64_t load_relaxed(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}
SYMMETRA_DEVICE uint32_t load_acquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
SYMMETRA_DEVICE void store_relaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
SYMMETRA_DEVICE void store_relaxed(uint64_t* p, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}
SYMMETRA_DEVICE void store_release(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
/// Releases the work before this kernel on its stream, but nothing that this kernel did. The kernel boundary has
/// already made that work visible, so no fence is needed; a fence costs half a microsecond.
SYMMETRA_DEVICE void store_release_prior(uint32_t* p, uint32_t value) { store_relaxed(p, value); }
SYMMETRA_DEVICE uint32_t exchange_relaxed(uint32_t* p, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.sys.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(value) : "memory");
  return before;
}
/// Adds one to a word of the own device, and returns its previous value.
SYMMETRA_DEVICE uint32_t take_relaxed(uint32_t* p) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(p) : "memory");
  return before;
}
SYMMETRA_DEVICE void add_relaxed(uint64_t* p, uint64_t value) {
  asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(value));  // a counter: without order
}

SYMMETRA_DEVICE Packet load_packet(const Packet* p) {
  Packet packet;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(packet.half[0]), "=l"(packet.half[1]) : "l"(p) : "memory");
  return packet;
}
SYMMETRA_DEVICE void store_packet(Packet* p, const Packet& packet) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(packet.half[0]), "l"(packet.half[1]) : "memory");
}
/// Stores two words, each of which is atomic. `p` is aligned for a packet.
SYMMETRA_DEVICE void store_pair(uint64_t* p, uint64_t first, uint64_t second) {
  store_packet(reinterpret_cast<Packet*>(p), {{first, second}});
}

// Memory that is not accessed concurrently.

/// `p` is aligned for T.
template <class T>
SYMMETRA_DEVICE T load(const void* p) {
  return *static_cast<const T*>(p);
}
template <class T>
SYMMETRA_DEVICE void store(void* p, const T& value) {
  *static_cast<T*>(p) = value;
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
SYMMETRA_DEVICE void add_shared(uint32_t* p, uint32_t value) { atomicAdd(p, value); }

// Numbers. Conversions round to nearest even.

struct Pair {
  float low, high;
};

/// The logarithm of a power of two.
SYMMETRA_DEVICE uint32_t log2_of(uint32_t power) { return 31 - __clz(static_cast<int>(power)); }

SYMMETRA_DEVICE float f32_of(uint32_t bits) { return __uint_as_float(bits); }
SYMMETRA_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
SYMMETRA_DEVICE double f64_of(uint32_t low, uint32_t high) { return __hiloint2double(static_cast<int>(high), static_cast<int>(low)); }
SYMMETRA_DEVICE uint64_t bits_of(double value) { return static_cast<uint64_t>(__double_as_longlong(value)); }

// Arithmetic in which every step is rounded, to nearest even. The compiler fuses none of these intrinsics, with any
// flags.

SYMMETRA_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
SYMMETRA_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
SYMMETRA_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
/// The bits of 1 / a, in fewer instructions than a quotient.
SYMMETRA_DEVICE float reciprocal(float a) { return __frcp_rn(a); }
/// `sum` plus a product. The product is exact in a float, so it need not be rounded separately.
SYMMETRA_DEVICE float add_exact_product(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
SYMMETRA_DEVICE float square_root(float a) { return __fsqrt_rn(a); }

SYMMETRA_DEVICE Pair unpack_bf16(uint32_t word) { return {f32_of(word << 16), f32_of(word & 0xFFFF0000)}; }
SYMMETRA_DEVICE uint32_t pack_bf16(Pair pair) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(pair.high), "f"(pair.low));
  return word;
}
SYMMETRA_DEVICE Pair unpack_f16(uint32_t word) {
  Pair pair;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
      : "=f"(pair.low), "=f"(pair.high)
      : "r"(word));
  return pair;
}
SYMMETRA_DEVICE uint32_t pack_f16(Pair pair) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(pair.high), "f"(pair.low));
  return word;
}

#ifdef SYMMETRA_MULTICASTS
// Multicast accesses: to the memory at one offset of every rank's arena, by the switch between the GPUs, on sm_90 and
// later. `At` has the members of device::Multicast. Every access is at system scope.

// Sums of 8-bit floats. ptxas refuses them in code that is not for one of these chips only.
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
#define SYMMETRA_ADDS_F8
#endif

/// The address of an access.
template <class At>
SYMMETRA_DEVICE uint8_t* multicast_address(const At& at, uint64_t bytes) {
#if __CUDA_ARCH__ < 900
  __trap();  // a device without multicast gets no address
#endif
  return static_cast<uint8_t*>(at.address) + at.offset_bytes + bytes;
}

/// The sum of 16 bytes of every rank, at a multiple of 16. `Data` has four words.
template <Adds kAdds, class Data, class At>
SYMMETRA_DEVICE Data multicast_load_sum(const At& at, uint64_t bytes) {
  uint8_t* const p = multicast_address(at, bytes);
  Data sum{};
#if __CUDA_ARCH__ >= 900
  if constexpr (kAdds == Adds::kF32) {
    float value[4];
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "l"(p)
                 : "memory");
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 4; ++i) sum.word[i] = bits_of(value[i]);
  } else if constexpr (kAdds == Adds::kF16) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
                 : "l"(p)
                 : "memory");
  } else if constexpr (kAdds == Adds::kBF16) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
                 : "l"(p)
                 : "memory");
  } else if constexpr (kAdds == Adds::kE4M3 || kAdds == Adds::kE5M2) {
#ifndef SYMMETRA_ADDS_F8
    __trap();  // the host launches no such sum here
#else
    if constexpr (kAdds == Adds::kE4M3) {
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f16.v4.e4m3x4 {%0, %1, %2, %3}, [%4];"
                   : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
                   : "l"(p)
                   : "memory");
    } else {
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f16.v4.e5m2x4 {%0, %1, %2, %3}, [%4];"
                   : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])
                   : "l"(p)
                   : "memory");
    }
#endif
  } else if constexpr (kAdds == Adds::kWords) {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];" : "=r"(sum.word[i]) : "l"(p + 4 * i) : "memory");
    }
  } else {
    SYMMETRA_UNROLL
    for (uint32_t i = 0; i < 4; i += 2) {
      uint64_t value;
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u64 %0, [%1];" : "=l"(value) : "l"(p + 4 * i) : "memory");
      sum.word[i] = static_cast<uint32_t>(value);
      sum.word[i + 1] = static_cast<uint32_t>(value >> 32);
    }
  }
#endif
  return sum;
}
/// Stores 16 bytes on every rank, at a multiple of 16.
template <class Data, class At>
SYMMETRA_DEVICE void multicast_store(const At& at, uint64_t bytes, const Data& data) {
  [[maybe_unused]] uint8_t* const p = multicast_address(at, bytes);
#if __CUDA_ARCH__ >= 900
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(f32_of(data.word[0])),
               "f"(f32_of(data.word[1])), "f"(f32_of(data.word[2])), "f"(f32_of(data.word[3]))
               : "memory");
#endif
}
/// Stores a word on every rank, and releases this thread's earlier writes.
template <class At>
SYMMETRA_DEVICE void multicast_store_release(const At& at, uint64_t bytes, uint32_t value) {
  [[maybe_unused]] uint8_t* const p = multicast_address(at, bytes);
#if __CUDA_ARCH__ >= 900
  asm volatile("multimem.st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
#endif
}
/// Adds to a word of every rank.
template <class At>
SYMMETRA_DEVICE void multicast_add(const At& at, uint64_t bytes, uint32_t value) {
  [[maybe_unused]] uint8_t* const p = multicast_address(at, bytes);
#if __CUDA_ARCH__ >= 900
  asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
#endif
}
/// Adds to a word of every rank, and releases this thread's earlier writes.
template <class At>
SYMMETRA_DEVICE void multicast_add_release(const At& at, uint64_t bytes, uint32_t value) {
  [[maybe_unused]] uint8_t* const p = multicast_address(at, bytes);
#if __CUDA_ARCH__ >= 900
  asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
#endif
}
#endif

// Conversions of narrow formats. SYMMETRA_CONVERTS_F8 and SYMMETRA_CONVERTS_F4 are defined if the chip has instructions
// for them; otherwise kernels use integer arithmetic. The first value is in the lowest bits.

#if __CUDA_ARCH__ >= 890
#define SYMMETRA_CONVERTS_F8
SYMMETRA_DEVICE uint32_t pack_e4m3(Pair pair) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(pair.high), "f"(pair.low));
  return codes;
}
SYMMETRA_DEVICE uint32_t pack_e5m2(Pair pair) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(pair.high), "f"(pair.low));
  return codes;
}
/// Converts through f16, which has every value of e4m3.
SYMMETRA_DEVICE Pair unpack_e4m3(uint32_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return unpack_f16(halves);
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM100_ALL
#define SYMMETRA_CONVERTS_F4
SYMMETRA_DEVICE uint32_t pack_e2m1(Pair pair) {
  uint32_t codes;
  asm("{\n.reg .b8 byte;\ncvt.rn.satfinite.e2m1x2.f32 byte, %1, %2;\ncvt.u32.u8 %0, byte;\n}"
      : "=r"(codes)
      : "f"(pair.high), "f"(pair.low));
  return codes;
}
#endif

}  // namespace symmetra::platform
