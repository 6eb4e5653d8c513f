// Two ranks as threads sum a tensor on the CPU and print what each sees: 2.
#include <cstdio>
#include <future>

#include "symmetra/symmetra.hpp"
using namespace symmetra;

void run(Bootstrap& bootstrap) {
  const Device device = Device::host();  // or Device::cuda(bootstrap.rank())
  const Stream stream(device);           // or Stream::borrow(device, your_cuda_stream)
  const Communicator communicator = Communicator::open(bootstrap, device);
  const SymmetricBuffer tensor = communicator.symmetric<float>(4096);
  tensor.write(std::vector<float>(4096, 1.0f), stream);
  communicator.all_reduce(tensor, stream);
  communicator.synchronize(stream);
  std::printf("%g\n", tensor.read<float>(stream).back());
  communicator.close();
}

int main() {
  const auto ranks = bootstrap::threads(2);
  const auto other = std::async(std::launch::async, [&] { run(*ranks[1]); });
  run(*ranks[0]);
}
