// The kernels of tests/kernels/heap_kernel.cuh and heap_atomics.cuh on GPUs, a rank on each, in one process: bytes moved, words changed
// together where links have atomics, and orders of messages. With one GPU, a world of one.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "tests/kernels/heap_atomics.cuh"

namespace trial {
namespace {

int checks = 0, failures = 0;

void check(bool holds, const char* what, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  ++checks;
  if (holds) return;
  if (++failures < 40) {
    std::printf("FAILED: %s (%llu, %llu, %llu)\n", what, static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                static_cast<unsigned long long>(c));
  }
}

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define MUST(call) must(call, #call)

constexpr uint64_t kHeapBytes = 1 << 20;
constexpr uint32_t kChannels = 64;
/// Where a rank's wrongs are counted, and where data begin.
constexpr uint64_t kWrong = 0, kData = 256;

/// The heaps of a group, each on its GPU.
class Heaps {
 public:
  explicit Heaps(uint32_t world) : world_(world) {
    for (uint32_t rank = 0; rank < world; ++rank) ranks_.emplace_back(static_cast<int>(rank));
  }
  Heap of(uint32_t rank) const {
    Heap heap{};
    const Rank& own = ranks_[rank];
    for (uint32_t peer = 0; peer < world_; ++peer) {
      heap.base[peer] = ranks_[peer].memory;
      heap.signals.pads[peer] = reinterpret_cast<uint32_t*>(ranks_[peer].memory + kHeapBytes);
    }
    heap.bytes = kHeapBytes;
    heap.signals.sent = heap.signals.pads[rank] + kPadWords;
    heap.signals.awaited = heap.signals.sent + kPadWords;
    heap.signals.wait = {reinterpret_cast<device::Progress*>(heap.signals.awaited + kPadWords), own.status, 20'000'000'000};
    heap.signals.rank = rank;
    heap.signals.world = world_;
    heap.channels = kChannels;
    return heap;
  }
  template <class T>
  T* at(uint32_t rank, uint64_t offset) const {
    return reinterpret_cast<T*>(ranks_[rank].memory + offset);
  }
  /// Reads a value of a rank's heap.
  template <class T>
  T read(uint32_t rank, uint64_t offset) const {
    T value;
    MUST(cudaMemcpy(&value, at<uint8_t>(rank, offset), sizeof(T), cudaMemcpyDefault));
    return value;
  }
  /// Runs a kernel on every rank at once.
  template <class Args>
  void run(uint32_t blocks, uint32_t threads, void (*kernel)(Args), const std::vector<Args>& args) const {
    for (uint32_t rank = 0; rank < world_; ++rank) {
      MUST(cudaSetDevice(static_cast<int>(rank)));
      kernel<<<blocks, threads>>>(args[rank]);
      MUST(cudaGetLastError());
    }
    for (uint32_t rank = 0; rank < world_; ++rank) {
      MUST(cudaSetDevice(static_cast<int>(rank)));
      MUST(cudaDeviceSynchronize());
      check(ranks_[rank].status->code == kernels::kStatusOk, "no wait gives up", rank, ranks_[rank].status->peer);
    }
  }
  /// How much the kernels found wrong, on all ranks.
  uint64_t wrong() const {
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < world_; ++rank) sum += read<uint32_t>(rank, kWrong);
    return sum;
  }

 private:
  static constexpr uint64_t kPadWords = kChannels * device::kMaxWorld;
  struct Rank {
    uint8_t* memory = nullptr;
    device::Status* status = nullptr;
    explicit Rank(int gpu) {
      constexpr uint64_t kBytes = kHeapBytes + 3 * kPadWords * 4 + sizeof(device::Progress);
      MUST(cudaSetDevice(gpu));
      MUST(cudaMalloc(reinterpret_cast<void**>(&memory), kBytes));
      MUST(cudaMemset(memory, 0, kBytes));
      MUST(cudaHostAlloc(reinterpret_cast<void**>(&status), sizeof(device::Status), cudaHostAllocPortable | cudaHostAllocMapped));
      *status = device::Status{};
    }
    Rank(const Rank&) = delete;
    ~Rank() {
      cudaFree(memory);
      cudaFreeHost(status);
    }
  };
  uint32_t world_;
  std::deque<Rank> ranks_;
};

template <class Who>
__global__ void move_kernel(const __grid_constant__ MoveArgs args) {
  move_all<Who>(args);
}
template <class T>
__global__ void typed_kernel(const __grid_constant__ TypedArgs args) {
  store_and_load<T>(args);
}
template <class T>
__global__ void atomic_kernel(const __grid_constant__ AtomicArgs<T> args) {
  change_all(args);
}
__global__ void float_kernel(const __grid_constant__ FloatArgs args) { add_floats(args); }
__global__ void message_kernel(const __grid_constant__ LitmusArgs args) { pass_messages(args); }
__global__ void buffer_kernel(const __grid_constant__ LitmusArgs args) { buffer_stores(args); }

template <class Who>
void test_moves(uint32_t world, uint32_t blocks, uint32_t threads, const std::vector<Move>& moves) {
  const Heaps heaps(world);
  std::vector<MoveArgs> args;
  const uint64_t list = kHeapBytes - moves.size() * sizeof(Move);
  for (uint32_t rank = 0; rank < world; ++rank) {
    MUST(cudaMemcpy(heaps.at<Move>(rank, list), moves.data(), moves.size() * sizeof(Move), cudaMemcpyDefault));
    args.push_back({heaps.of(rank), heaps.at<uint8_t>(rank, kData), heaps.at<uint32_t>(rank, kWrong), heaps.at<Move>(rank, list),
                    static_cast<uint32_t>(moves.size())});
  }
  heaps.run(blocks, threads, move_kernel<Who>, args);
  check(heaps.wrong() == 0, "bytes arrive in their places, and no others", world, threads, heaps.wrong());
}

template <class T>
void test_typed(uint32_t world) {
  const Heaps heaps(world);
  std::vector<TypedArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<uint8_t>(rank, kData), heaps.at<uint32_t>(rank, kWrong)});
  }
  heaps.run(2, 32, typed_kernel<T>, args);
  check(heaps.wrong() == 0, "values of this size arrive", sizeof(T), world);
}

template <class T>
void test_atomics(uint32_t world) {
  constexpr uint32_t kBlocks = 8, kThreads = 128;
  const Heaps heaps(world);
  std::vector<AtomicArgs<T>> args;
  const uint64_t tickets = 4096, exchanged = tickets + kBlocks * kThreads * kRounds * sizeof(T);
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<AtomicWords<T>>(rank, kData), heaps.at<T>(rank, tickets), heaps.at<T>(rank, exchanged),
                    heaps.at<uint32_t>(rank, kWrong)});
  }
  heaps.run(kBlocks, kThreads, atomic_kernel<T>, args);
  const auto words = heaps.read<AtomicWords<T>>(0, kData);
  const uint64_t changes = uint64_t{world} * kBlocks * kThreads * kRounds;
  check(words.added == static_cast<T>(changes) && words.counted == static_cast<T>(changes), "sums are exact", sizeof(T), world);
  check(words.summed == static_cast<T>(2 * changes), "sums that are not returned are exact", sizeof(T), world);
  check(words.subtracted == static_cast<T>(T{0} - static_cast<T>(3 * changes)), "differences are exact", sizeof(T), world);
  check(words.xored == 0 && heaps.wrong() == 0, "bits are back", sizeof(T), world);
  std::vector<bool> seen(changes);
  std::vector<T> own(kBlocks * kThreads * kRounds);
  for (uint32_t rank = 0; rank < world; ++rank) {
    MUST(cudaMemcpy(own.data(), heaps.at<T>(rank, tickets), own.size() * sizeof(T), cudaMemcpyDefault));
    for (const T ticket : own) {
      const auto number = static_cast<uint64_t>(ticket);
      if (number < changes) seen[number] = true;
    }
  }
  bool unique = true;
  for (const bool one : seen) unique &= one;
  check(unique, "tickets are unique", sizeof(T), world);
}

void test_floats(uint32_t world) {
  const Heaps heaps(world);
  std::vector<FloatArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    args.push_back({heaps.of(rank), heaps.at<float>(rank, kData), heaps.at<uint32_t>(rank, kWrong)});
  }
  heaps.run(1, 64, float_kernel, args);
  const auto changes = static_cast<float>(world * 64 * kRounds);
  check(heaps.read<float>(0, kData) == 0.25f * changes && heaps.read<float>(0, kData + 4) == 1.5f * changes, "floats are summed", world);
}

void test_litmus(uint32_t world, uint32_t rounds, void (*kernel)(LitmusArgs), Announce announce, Hear hear) {
  const Heaps heaps(world);
  std::vector<LitmusArgs> args;
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint32_t* const data = heaps.at<uint32_t>(rank, kData);
    args.push_back({heaps.of(rank), data, data + 64, heaps.at<uint32_t>(rank, kWrong), announce, hear, rounds});
  }
  heaps.run(2, 16, kernel, args);
  check(heaps.wrong() == 0, "messages come in order", world, static_cast<uint64_t>(announce), static_cast<uint64_t>(hear));
}

void test_world(uint32_t world, bool native, std::mt19937& random) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  std::vector<Move> moves{{0, 0, 0}, {4097, 0, 0}, {4096, 16, 0}, {4097, 3, 3}, {4097, 1, 2}, {4094, 4, 8}, {1, 15, 0}};
  while (moves.size() < 200) moves.push_back({moves.size() < 100 ? below(40) : below(4098), below(32), below(32)});
  test_moves<device::Block>(world, 8, 256, moves);
  test_moves<device::Block>(world, 2, 33, moves);
  test_moves<device::Warp>(world, 4, 256, moves);
  test_moves<device::Thread>(world, 2, 16, moves);
  test_typed<uint8_t>(world);
  test_typed<uint16_t>(world);
  test_typed<uint32_t>(world);
  test_typed<uint64_t>(world);
  test_typed<uint4>(world);
  for (uint32_t hear = 0; hear < 4; ++hear) {
    for (const Announce announce : {Announce::kStore, Announce::kFence}) {
      test_litmus(world, announce == Announce::kStore && hear == 0 ? 100'000 : 5'000, message_kernel, announce, static_cast<Hear>(hear));
    }
  }
  if (world == 2) test_litmus(2, 100'000, buffer_kernel, Announce::kFence, Hear::kFence);
  if (!native) return;
  test_atomics<uint32_t>(world);
  test_atomics<int32_t>(world);
  test_atomics<uint64_t>(world);
  test_atomics<int64_t>(world);
  test_floats(world);
  for (const Announce announce : {Announce::kAdd, Announce::kExchange, Announce::kCompare}) {
    test_litmus(world, 5'000, message_kernel, announce, Hear::kLoad);
  }
}

}  // namespace
}  // namespace trial

int main() {
  using namespace trial;
  // A kernel that is loaded late waits for the kernels of other GPUs.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("heap on GPUs: skipped, there is none\n");
    return 0;
  }
  bool native = true;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    MUST(cudaSetDevice(gpu));
    for (int peer = 0; peer < gpus; ++peer) {
      if (peer == gpu) continue;
      int atomics = 0;
      MUST(cudaDeviceEnablePeerAccess(peer, 0));
      MUST(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, gpu, peer));
      native &= atomics != 0;
    }
  }
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (uint32_t world : {1, 2, 3, 4, 5, 8}) {
    if (static_cast<int>(world) <= gpus) test_world(world, native, random);
  }
  std::printf("heap on %d GPUs: %d checks, %d failed\n", gpus, checks, failures);
  return failures == 0 ? 0 : 1;
}
