// Shared code of the programs that time kernels of experts alone: memory of a GPU, launches, and graphs of two ranks.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/experts/geometry.hpp"

namespace symmetra::bench {

constexpr uint32_t kWorld = 2;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

constexpr uint64_t up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// Memory of the current device, every byte of which is `fill`.
template <class T = uint8_t>
T* memory(uint64_t bytes, int fill = 0) {
  void* made = nullptr;
  check(cudaMalloc(&made, bytes), "cudaMalloc");
  check(cudaMemset(made, fill, bytes), "cudaMemset");
  return static_cast<T*>(made);
}

template <class T>
T* memory(const std::vector<T>& values) {
  T* const made = memory<T>(values.size() * sizeof(T));
  check(cudaMemcpy(made, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return made;
}

/// A device and its stream. `devices`: the number of devices; with one, the ranks share it.
struct Place {
  int device = 0;
  cudaStream_t stream = nullptr;

  Place() = default;
  Place(uint32_t number, int devices) : device(static_cast<int>(number) % devices) {
    check(cudaSetDevice(device), "cudaSetDevice");
    if (devices > 1) check(cudaDeviceEnablePeerAccess(1 - device, 0), "peers");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  }
};

/// The experts of some tokens, by chance: `top_k` different ones each.
inline std::vector<int32_t> drawn(uint32_t tokens, uint32_t experts, uint32_t top_k, std::mt19937& random) {
  std::vector<int32_t> all(experts), found;
  for (uint32_t i = 0; i < experts; ++i) all[i] = static_cast<int32_t>(i);
  for (uint32_t token = 0; token < tokens; ++token) {
    std::shuffle(all.begin(), all.end(), random);
    found.insert(found.end(), all.begin(), all.begin() + top_k);
  }
  return found;
}

/// The table of experts that lie in blocks, as every rank sees it.
inline std::vector<uint32_t> table_of(uint32_t experts) {
  const uint32_t local = experts / kWorld;
  std::vector<uint32_t> table;
  for (uint32_t i = 0; i <= kWorld; ++i) table.push_back(i * local);
  for (uint32_t i = 0; i < experts; ++i) table.push_back(1u << 20 | i / local << 16 | i);
  table.resize(table.size() + experts);
  return table;
}

/// Launches blocks for `units`, of a thread for each of `items`, which may begin while the kernel before ends.
template <class Args>
void launch(void (*kernel)(Args), const Place& place, const Args& args, uint64_t units, uint64_t items, uint64_t most_threads,
            uint64_t most_blocks = kernels::kMaxBlocks) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<uint32_t>(std::min(units, most_blocks));
  config.blockDim = static_cast<uint32_t>(up(std::min(items, most_threads), 32));
  config.dynamicSmemBytes = kernels::kSharedBytes + 4 * kernels::expert_words(args, config.blockDim.x);
  config.stream = place.stream;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, args), "launch");
}

/// Microseconds of one `enqueue(rank)` of all ranks, on the rank that begins last: the median of `graphs` graphs of
/// `calls` calls. `place(rank)`: the device and stream of a rank.
template <class PlaceOf, class Enqueue>
double time(PlaceOf place, Enqueue enqueue, int calls, int graphs) {
  std::vector<cudaGraphExec_t> made(kWorld);
  std::vector<cudaEvent_t> begins(kWorld), ends(kWorld);
  for (uint32_t i = 0; i < kWorld; ++i) {
    const Place& its = place(i);
    check(cudaSetDevice(its.device), "cudaSetDevice");
    check(cudaEventCreate(&begins[i]), "event");
    check(cudaEventCreate(&ends[i]), "event");
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(its.stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int call = 0; call < calls; ++call) enqueue(i);
    check(cudaStreamEndCapture(its.stream, &graph), "capture");
    check(cudaGraphInstantiate(&made[i], graph, 0), "instantiate");
    check(cudaGraphUpload(made[i], its.stream), "upload");
    check(cudaStreamSynchronize(its.stream), "synchronize");
  }
  std::vector<double> times;
  for (int graph = 0; graph < graphs; ++graph) {
    for (uint32_t i = 0; i < kWorld; ++i) {
      const Place& its = place(i);
      check(cudaSetDevice(its.device), "cudaSetDevice");
      check(cudaEventRecord(begins[i], its.stream), "record");
      check(cudaGraphLaunch(made[i], its.stream), "launch");
      check(cudaEventRecord(ends[i], its.stream), "record");
    }
    float least = 0;
    for (uint32_t i = 0; i < kWorld; ++i) {
      float ms = 0;
      check(cudaStreamSynchronize(place(i).stream), "synchronize");
      check(cudaEventElapsedTime(&ms, begins[i], ends[i]), "time");
      least = i == 0 ? ms : std::min(least, ms);
    }
    times.push_back(least * 1e3 / calls);
  }
  std::nth_element(times.begin(), times.begin() + graphs / 2, times.end());
  return times[graphs / 2];
}

}  // namespace symmetra::bench
