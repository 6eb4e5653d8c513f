// The host's time of an eager ncclAllReduce of 16 KiB, of a group of two GPUs from one thread, and of a poll for errors, by
// the NCCL that the first argument names. Prints microseconds; a second argument 1 means that a value was wrong.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Comm = void*;
void* library = nullptr;

template <typename F>
F* function(const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) std::exit(2);
  return reinterpret_cast<F*>(found);
}

void check(int code) {
  if (code != 0) {
    std::fprintf(stderr, "code %d: %s\n", code, function<const char*(Comm)>("ncclGetLastError")(nullptr));
    std::exit(3);
  }
}

constexpr int kGpus = 2, kCalls = 2000;
constexpr size_t kCount = 8192;
constexpr int kBfloat16 = 9, kSum = 0;

double us(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int, char** arguments) {
  library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  auto* all_reduce = function<int(const void*, void*, size_t, int, int, Comm, cudaStream_t)>("ncclAllReduce");
  auto* group_start = function<int()>("ncclGroupStart");
  auto* group_end = function<int()>("ncclGroupEnd");
  auto* async_error = function<int(Comm, int*)>("ncclCommGetAsyncError");
  Comm comms[kGpus];
  check(function<int(Comm*, int, const int*)>("ncclCommInitAll")(comms, kGpus, nullptr));
  void* buffers[kGpus];
  cudaStream_t streams[kGpus];
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    cudaSetDevice(gpu);
    cudaMalloc(&buffers[gpu], kCount * 2);
    cudaMemset(buffers[gpu], 0, kCount * 2);
    cudaStreamCreate(&streams[gpu]);
  }
  const auto call = [&](int gpu) { check(all_reduce(buffers[gpu], buffers[gpu], kCount, kBfloat16, kSum, comms[gpu], streams[gpu])); };
  double single[kGpus], group = 0;
  // The queue of a stream is shorter than all calls: pauses keep the wait for its end out of the time.
  const auto each = [&](int gpu) {
    cudaSetDevice(gpu);
    single[gpu] = 0;
    for (int round = 0; round < kCalls / 100; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) call(gpu);
      if (round > 1) single[gpu] += us(start);
      cudaStreamSynchronize(streams[gpu]);
    }
    single[gpu] /= kCalls - 200;
  };
  std::vector<std::thread> threads;
  for (int gpu = 0; gpu < kGpus; ++gpu) threads.emplace_back(each, gpu);
  for (auto& thread : threads) thread.join();
  for (int round = 0; round < kCalls / 100; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) {
      group_start();
      for (int gpu = 0; gpu < kGpus; ++gpu) call(gpu);
      check(group_end());
    }
    if (round > 1) group += us(start);
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      cudaSetDevice(gpu);
      cudaStreamSynchronize(streams[gpu]);
    }
  }
  group /= kCalls - 200;
  const auto start = std::chrono::steady_clock::now();
  int code = 0;
  for (int i = 0; i < 100000; ++i) check(async_error(comms[0], &code));
  const double poll = us(start) / 100000;
  size_t free_before = 0, free_after = 0, bytes = 0;
  cudaSetDevice(0);
  cudaMemGetInfo(&free_before, &bytes);
  Comm more[kGpus];
  const auto opening = std::chrono::steady_clock::now();
  check(function<int(Comm*, int, const int*)>("ncclCommInitAll")(more, kGpus, nullptr));
  const double open = us(opening) / 1000;
  cudaMemGetInfo(&free_after, &bytes);
  std::printf(
      "{\"all_reduce_us\": %.3f, \"group_of_two_us\": %.3f, \"async_error_us\": %.4f, \"open_ms\": %.1f, \"open_mib\": %.1f, "
      "\"code\": %d}\n",
      single[0], group, poll, open, (free_before - free_after) / 1048576.0, code);
  std::fflush(stdout);
  std::_Exit(0);
}
