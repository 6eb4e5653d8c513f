// The host's part of the example, for GPUs and the CPU: buffers, launches, and what must come out.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "gpu_initiated.cuh"
#include "symmetra/symmetra.hpp"

namespace example {

/// What rank `rank` has at element `i` of its input: small integers, whose sums are exact.
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

/// Runs every kernel as one rank. `launch(call, work, queue, stream)` enqueues the kernel of `call`.
template <class Launch>
bool run(symmetra::Bootstrap& bootstrap, const symmetra::Device& device, Launch launch) {
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
  communicator.close();
  return good;
}

}  // namespace example
