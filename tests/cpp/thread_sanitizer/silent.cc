// A program without a race: eager calls, a graph and a split, in symmetric, plain and adopted memory.
#include <cstdio>
#include <future>
#include <vector>

#include "symmetra/symmetra.hpp"

using namespace symmetra;

namespace {

void run(Bootstrap& bootstrap) {
  const Device device = Device::host();
  const Stream stream(device);
  const Communicator communicator = Communicator::open(bootstrap, device);
  const SymmetricBuffer tensor = communicator.symmetric<float>(4096);
  const DeviceBuffer plain(device, 4096, Dtype::kF32);
  const Graph graph = stream.capture([&](Capture& capture) { communicator.all_reduce(tensor, capture); });
  for (int round = 0; round < 20; ++round) {
    tensor.write(std::vector<float>(4096, 1.0f), stream);
    graph.launch(stream);
    communicator.all_reduce(tensor, plain, stream);
    communicator.synchronize(stream);
    if (plain.read<float>(stream).back() != 4) throw std::runtime_error("a sum is wrong");
  }
  communicator.split(0u)->close();
  communicator.close();
}

}  // namespace

int main() {
  const auto ranks = bootstrap::threads(2);
  auto other = std::async(std::launch::async, [&] { run(*ranks[1]); });
  run(*ranks[0]);
  other.get();
}
