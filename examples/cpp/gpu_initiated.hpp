// The host's part of the example, for GPUs and the CPU: buffers, launches, and the expected results.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu_initiated.cuh"
#include "symmetra/symmetra.hpp"

namespace example {

/// Whether the word is the option that asks for times.
inline bool asks_for_time(const char* word) { return std::strcmp(word, "--time") == 0; }

/// Element `i` of the input of rank `rank`: small integers, whose sums are exact.
inline float value(std::size_t rank, std::size_t i) { return static_cast<float>((rank * 7 + i * 3) % 11); }

/// Prints and returns whether all elements are as expected.
template <class Expected>
bool right(const char* what, std::size_t rank, const std::vector<float>& found, std::size_t count, Expected expected) {
  for (std::size_t i = 0; i < count; ++i) {
    if (found[i] == expected(i)) continue;
    const auto wanted = static_cast<double>(expected(i)), got = static_cast<double>(found[i]);
    std::fprintf(stderr, "rank %zu: %s: element %zu is %g, not %g\n", rank, what, i, got, wanted);
    return false;
  }
  std::printf("rank %zu: %s ok\n", rank, what);
  return true;
}

/// `count` random integers, as floats.
inline std::vector<float> random_values(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % (1 << 24));
  return values;
}

/// Microseconds of one of `operations` operations of a graph, on the slowest rank: the median of several launches.
inline double slowest_us(const Communicator& communicator, const Stream& stream, const Graph& graph, int operations) {
  constexpr std::size_t kLaunches = 7;
  const std::size_t world = communicator.world_size();
  std::vector<double> slowest;
  // The first launch is not for timing.
  for (std::size_t launch = 0; launch <= kLaunches; ++launch) {
    communicator.barrier();
    const auto start = std::chrono::steady_clock::now();
    graph.launch(stream);
    communicator.synchronize(stream);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    const double own = took.count() / operations;
    std::vector<double> all(world);
    communicator.all_gather_bytes(&own, all.data(), sizeof(own));
    if (launch > 0) slowest.push_back(*std::max_element(all.begin(), all.end()));
  }
  std::sort(slowest.begin(), slowest.end());
  return slowest[kLaunches / 2];
}

/// Times the all-gather of 1 MiB a rank, by the kernel and by the library, in graphs of `operations` operations each. Whether both
/// are right.
template <class Launch>
bool time_all_gather(const Communicator& communicator, const Stream& stream, Launch launch, int operations) {
  constexpr std::size_t kCount = (1 << 20) / sizeof(float);
  const std::size_t rank = communicator.rank(), world = communicator.world_size();
  const SymmetricBuffer input = communicator.symmetric<float>(kCount), output = communicator.symmetric<float>(world * kCount);
  const std::uint64_t seed = (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  std::vector<std::uint64_t> seeds(world);
  communicator.all_gather_bytes(&seed, seeds.data(), sizeof(seed));
  input.write(random_values(seed, kCount), stream);
  std::vector<float> expected;
  for (const std::uint64_t of : seeds) {
    const std::vector<float> values = random_values(of, kCount);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  const auto timed = [&](const char* what, double& us, auto enqueue) {
    output.write(std::vector<float>(world * kCount, -1), stream);
    const Graph graph = stream.capture([&](Capture& capture) {
      for (int i = 0; i < operations; ++i) enqueue(capture);
    });
    // Every rank writes into the outputs of the others only after the first barrier: they have written theirs by then.
    us = slowest_us(communicator, stream, graph, operations);
    communicator.barrier();
    return right(what, rank, output.read<float>(stream), world * kCount, [&](std::size_t i) { return expected[i]; });
  };
  double kernel_us = 0, library_us = 0;
  bool good = timed("timed all-gather by the kernel", kernel_us, [&](Capture& capture) {
    const Work work{communicator.heap(capture), input.data<float>(), output.data<float>(), nullptr, static_cast<std::uint32_t>(kCount)};
    launch(AllGather{}, work, capture, stream);
  });
  good &= timed("timed all-gather by the library", library_us, [&](Capture& capture) { communicator.all_gather(input, output, capture); });
  if (rank == 0) {
    std::printf("all-gather of 1 MiB a rank, %zu ranks: %.2f us by the kernel, %.2f us by the library, ratio %.2f\n", world, kernel_us,
                library_us, kernel_us / library_us);
  }
  return good;
}

/// Runs every kernel as one rank. `launch(call, work, queue, stream)` enqueues the kernel of `call`. If
/// `timed_operations` is not 0, also times graphs of `timed_operations` all-gathers.
template <class Launch>
bool run(symmetra::Bootstrap& bootstrap, const symmetra::Device& device, Launch launch, int timed_operations) {
  constexpr std::size_t kSide = 32, kCount = kSide * kSide;
  const Communicator communicator = Communicator::open(bootstrap, device);
  const Stream stream(device);
  const std::size_t rank = communicator.rank(), world = communicator.world_size();
  const SymmetricBuffer input = communicator.symmetric<float>(world * kCount + 2 * kSide * kInner);
  const SymmetricBuffer output = communicator.symmetric<float>(world * kCount);
  const SymmetricBuffer slots = communicator.symmetric<float>(world * kCount);
  std::vector<float> values(input.count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
  input.write(values, stream);
  // Every rank writes into the outputs of the others, which they have made and written by now.
  communicator.barrier();
  const Work work{communicator.heap(stream), input.data<float>(), output.data<float>(), slots.data<float>(),
                  static_cast<std::uint32_t>(kCount)};
  bool good = true;
  const auto check = [&](const char* what, std::size_t count, auto expected) {
    communicator.synchronize(stream);
    good &= right(what, rank, output.read<float>(stream), count, expected);
  };
  const auto sum = [&](std::size_t i) {
    float all = 0;
    for (std::size_t of = 0; of < world; ++of) all += value(of, i);
    return all;
  };
  launch(AllGather{}, work, stream, stream);
  check("all-gather", world * kCount, [&](std::size_t i) { return value(i / kCount, i % kCount); });
  launch(ReduceScatter{}, work, stream, stream);
  check("reduce-scatter", kCount, [&](std::size_t i) { return sum(rank * kCount + i); });
  launch(AllReduce{}, work, stream, stream);
  check("all-reduce", kCount, sum);
  launch(AllToAll{}, work, stream, stream);
  check("all-to-all", world * kCount, [&](std::size_t i) { return value(i / kCount, rank * kCount + i % kCount); });
  launch(TiledProduct{}, work, stream, stream);
  check("product", world * kCount, [&](std::size_t i) {
    const std::size_t of = i / kCount, row = i % kCount / kSide, column = i % kSide;
    float product = 0;
    const std::size_t right = kSide * kInner;
    for (std::size_t k = 0; k < kInner; ++k) product += value(of, row * kInner + k) * value(of, right + k * kSide + column);
    return product;
  });
  // A graph owns what its kernels reach, from the capture of the heap on.
  const Graph graph = stream.capture([&](Capture& capture) {
    Work captured = work;
    captured.heap = communicator.heap(capture);
    launch(AllReduce{}, captured, capture, stream);
  });
  for (int replay = 0; replay < 100; ++replay) graph.launch(stream);
  check("all-reduce in a graph", kCount, sum);
  if (timed_operations > 0) good &= time_all_gather(communicator, stream, launch, timed_operations);
  communicator.close();
  return good;
}

}  // namespace example
