// A program with a data race that is independent of its collective.
#include <cstdio>
#include <future>
#include <vector>

#include "symmetra/symmetra.hpp"

using namespace symmetra;

namespace {

int calls = 0;

void run(Bootstrap& bootstrap) {
  const Device device = Device::host();
  const Stream stream(device);
  const Communicator communicator = Communicator::open(bootstrap, device);
  const DeviceBuffer values(device, 1000, Dtype::kF32);
  values.write(std::vector<float>(values.count(), 1.0f), stream);
  communicator.all_reduce(values, values, stream);
  ++calls;  // no lock
  communicator.synchronize(stream);
  communicator.close();
}

}  // namespace

int main() {
  const auto ranks = bootstrap::threads(2);
  const auto other = std::async(std::launch::async, [&] { run(*ranks[1]); });
  run(*ranks[0]);
  other.wait();
  std::printf("%d calls\n", calls);
}
