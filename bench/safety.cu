// The cost of bounded waits: one kernel, compiled with and without polling of the deadline and the abort word, on the same memory, in turn.
// Ranks are the GPUs of this process.
//   safety [WORLD] [ROUNDS]
// A graph of 40 calls is launched twice on every rank. Events time the second launch, which by then waits on the device. A time is that of
// the slowest rank. A round times bounded, unbounded and bounded kernels, then the three in reverse order, so that drift and order cancel
// out. Its cost is the ratio of the sums. Graphs are captured several times, since the location of their kernels matters.
// Prints one JSON object a size: medians, and the 95 % confidence interval of the median of rounds. "again" is the ratio of bounded to
// bounded: the resolution of the measurement. Built by bench/build.sh.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/geometry.hpp"

extern "C" const void* bounded(unsigned world);
extern "C" const void* unbounded(unsigned world);

namespace {

using namespace symmetra::kernels;

constexpr uint32_t kOperations = 40;
constexpr int kCaptures = 8;
enum Side { kBounded, kUnbounded, kAgain, kSides };
constexpr uint32_t kLanesLog2 = 5;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct Rank {
  uint8_t *region, *input, *output;
  BlockState* state;
  Progress* progress;
  Status* status;
  cudaStream_t stream;
  cudaEvent_t start, end;
  cudaGraphExec_t graphs[kSides];
};

template <class T>
T* device_memory(size_t bytes, int fill) {
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, bytes));
  MUST(cudaMemset(memory, fill, bytes));
  return static_cast<T*>(memory);
}

Rank make(int gpu, uint64_t most_bytes, uint32_t world) {
  Rank rank{};
  MUST(cudaSetDevice(gpu));
  rank.region = device_memory<uint8_t>(region_bytes(kOneShotSentinel, slot_packets(kOneShotSentinel, most_bytes, world), world), 0xFF);
  rank.input = device_memory<uint8_t>(most_bytes, 0);
  rank.output = device_memory<uint8_t>(most_bytes, 0);
  rank.state = device_memory<BlockState>(kMaxBlocks * sizeof(BlockState), 0);
  rank.progress = device_memory<Progress>(sizeof(Progress), 0);
  MUST(cudaHostAlloc(reinterpret_cast<void**>(&rank.status), sizeof(Status), cudaHostAllocPortable | cudaHostAllocMapped));
  *rank.status = Status{};
  MUST(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
  MUST(cudaEventCreate(&rank.start));
  MUST(cudaEventCreate(&rank.end));
  return rank;
}

cudaGraphExec_t capture(const std::vector<Rank>& ranks, uint32_t own, uint64_t bytes, uint64_t most_bytes, const void* kernel) {
  const uint32_t world = static_cast<uint32_t>(ranks.size());
  const Rank& rank = ranks[own];
  AllReduceArgs args{};
  args.input = rank.input;
  args.output = rank.output;
  args.count = bytes / 2;
  for (uint32_t peer = 0; peer < world; ++peer) args.peers[peer] = ranks[peer].region;
  args.slot_packets = slot_packets(kOneShotSentinel, most_bytes, world);
  args.state = rank.state;
  args.wait = {rank.progress, rank.status, 10'000'000'000};
  args.rank = own;
  args.world = world;
  args.dtype = kBF16;
  args.algorithm = kOneShotSentinel;
  args.lanes_log2 = kLanesLog2;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(std::clamp<uint64_t>(bytes / 16 >> kLanesLog2, 1, kMaxBlocks));
  config.blockDim = world << kLanesLog2;
  config.dynamicSmemBytes = shared_bytes(kOneShotSentinel, world, kLanesLog2);
  config.stream = rank.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* pointers[] = {&args};
  MUST(cudaSetDevice(static_cast<int>(own)));
  MUST(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
  for (uint32_t i = 0; i < kOperations; ++i) MUST(cudaLaunchKernelExC(&config, kernel, pointers));
  cudaGraph_t graph = nullptr;
  MUST(cudaStreamEndCapture(rank.stream, &graph));
  cudaGraphExec_t executable = nullptr;
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  MUST(cudaGraphDestroy(graph));
  return executable;
}

/// The slowest rank's time of one call, in microseconds.
double launch(const std::vector<Rank>& ranks, int which) {
  for (size_t gpu = 0; gpu < ranks.size(); ++gpu) {
    MUST(cudaSetDevice(static_cast<int>(gpu)));
    MUST(cudaGraphLaunch(ranks[gpu].graphs[which], ranks[gpu].stream));
    MUST(cudaEventRecord(ranks[gpu].start, ranks[gpu].stream));
    MUST(cudaGraphLaunch(ranks[gpu].graphs[which], ranks[gpu].stream));
    MUST(cudaEventRecord(ranks[gpu].end, ranks[gpu].stream));
  }
  double slowest_us = 0;
  for (const Rank& rank : ranks) {
    MUST(cudaEventSynchronize(rank.end));
    float elapsed_ms = 0;
    MUST(cudaEventElapsedTime(&elapsed_ms, rank.start, rank.end));
    slowest_us = std::max(slowest_us, 1000.0 * elapsed_ms / kOperations);
    if (rank.status->code != kStatusOk) std::exit(3);
  }
  return slowest_us;
}

/// A median of rounds, with its 95 % confidence interval.
struct Median {
  double value, low, high;
};

Median median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // How many of n values lie below the median is binomial, with a deviation of half the root of n.
  const double middle = static_cast<double>(values.size()) / 2, off = 0.98 * std::sqrt(static_cast<double>(values.size()));
  const size_t low = static_cast<size_t>(std::max(0.0, middle - off)), high = static_cast<size_t>(middle + off);
  return {values[values.size() / 2], values[low], values[std::min(high, values.size() - 1)]};
}

/// Per round.
struct Found {
  std::vector<double> bounded_us, unbounded_us, cost_percent, again_percent;
};

void run_rounds(const std::vector<Rank>& ranks, int rounds, Found& found) {
  for (int round = -3; round < rounds; ++round) {
    double times_us[kSides] = {};
    for (int which : {kBounded, kUnbounded, kAgain, kAgain, kUnbounded, kBounded}) times_us[which] += launch(ranks, which) / 2;
    if (round < 0) continue;
    found.bounded_us.push_back(times_us[kBounded]);
    found.unbounded_us.push_back(times_us[kUnbounded]);
    // The mean of the two bounded sides: one is first and last, the other in the middle.
    const double bounded_us = (times_us[kBounded] + times_us[kAgain]) / 2;
    found.cost_percent.push_back(100 * (bounded_us / times_us[kUnbounded] - 1));
    found.again_percent.push_back(100 * (times_us[kBounded] / times_us[kAgain] - 1));
  }
}

void print(uint32_t world, uint64_t bytes, const Found& found) {
  const Median cost = median(found.cost_percent), again = median(found.again_percent);
  std::printf(
      "{\"ranks\": %u, \"bytes\": %llu, \"rounds\": %zu, \"bounded_us\": %.4f, \"unbounded_us\": %.4f, "
      "\"cost_percent\": %.2f, \"cost_interval\": [%.2f, %.2f], \"again_percent\": %.2f, \"again_interval\": [%.2f, %.2f]}\n",
      world, static_cast<unsigned long long>(bytes), found.cost_percent.size(), median(found.bounded_us).value,
      median(found.unbounded_us).value, cost.value, cost.low, cost.high, again.value, again.low, again.high);
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t world = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 800;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < static_cast<int>(world) || bounded(world) == nullptr || rounds < kCaptures) {
    std::fprintf(stderr, "error: %u ranks (2, 4 or 8) need as many GPUs, and there are %d; %d rounds at least\n", world, gpus, kCaptures);
    return 2;
  }
  constexpr uint64_t kMostBytes = 64 << 10;
  std::vector<Rank> ranks;
  for (uint32_t gpu = 0; gpu < world; ++gpu) {
    ranks.push_back(make(static_cast<int>(gpu), kMostBytes, world));
    for (uint32_t peer = 0; peer < world; ++peer) {
      if (peer != gpu) MUST(cudaDeviceEnablePeerAccess(static_cast<int>(peer), 0));
    }
  }
  for (const uint64_t bytes : {uint64_t{1} << 10, kMostBytes}) {
    Found found;
    for (int captured = 0; captured < kCaptures; ++captured) {
      for (uint32_t rank = 0; rank < world; ++rank) {
        for (int side : {kBounded, kUnbounded, kAgain}) {
          const void* kernel = side == kUnbounded ? unbounded(world) : bounded(world);
          ranks[rank].graphs[side] = capture(ranks, rank, bytes, kMostBytes, kernel);
        }
      }
      run_rounds(ranks, rounds / kCaptures, found);
      for (Rank& rank : ranks) {
        for (cudaGraphExec_t graph : rank.graphs) MUST(cudaGraphExecDestroy(graph));
      }
    }
    print(world, bytes, found);
  }
  return 0;
}
