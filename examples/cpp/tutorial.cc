// The program of docs/tutorial-cpp.md: the C++ blocks of that page, in order.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "symmetra/symmetra.hpp"

using namespace symmetra;

/// The GPU of a rank, or the CPU where there is no GPU.
Device device_of(std::size_t rank) { return Device::count(DeviceKind::kCuda) == 0 ? Device::host() : Device::cuda(rank); }

void sum(Bootstrap& bootstrap) {
  const std::size_t rank = bootstrap.rank();
  const Device device = device_of(rank);
  const Stream stream(device);
  const Communicator communicator = Communicator::open(bootstrap, device);
  const SymmetricBuffer values = communicator.symmetric<float>(3);
  values.write(std::vector<float>{1, 10, static_cast<float>(rank)}, stream);
  communicator.all_reduce(values, stream);
  communicator.synchronize(stream);
  const std::vector<float> read = values.read<float>(stream);
  std::printf("rank %zu: %g %g %g\n", rank, read[0], read[1], read[2]);
  communicator.close();
}

void threads() {
  const std::vector<std::unique_ptr<Bootstrap>> ranks = bootstrap::threads(2);
  std::future<void> other = std::async(std::launch::async, [&] { sum(*ranks[1]); });
  sum(*ranks[0]);
  other.get();
}

std::unique_ptr<Bootstrap> processes() { return bootstrap::tcp_from_env(std::chrono::seconds(60)); }

constexpr std::size_t kInputs = 512, kOutputs = 256;

/// The weight in a row and a column of W.
float weight(std::size_t row, std::size_t column) { return static_cast<float>((row + 3 * column) % 7) - 3; }

/// The product of x and W, over some rows of W.
std::vector<float> product(const std::vector<float>& x, std::size_t begin, std::size_t end) {
  std::vector<float> y(kOutputs);
  for (std::size_t column = 0; column < kOutputs; ++column)
    for (std::size_t row = begin; row < end; ++row) y[column] += x[row] * weight(row, column);
  return y;
}

Config patient_for(std::chrono::seconds wait) {
  Config config;
  config.deadlines.steady = wait;
  return config;
}

struct Layer {
  explicit Layer(Bootstrap& bootstrap)
      : device(device_of(bootstrap.rank())),
        stream(device),
        communicator(Communicator::open(bootstrap, device, patient_for(std::chrono::seconds(2)))),
        begin(kInputs * communicator.rank() / communicator.world_size()),
        end(kInputs * (communicator.rank() + 1) / communicator.world_size()),
        y(communicator.symmetric<float>(kOutputs)),
        reduce(stream.capture([&](Capture& capture) { communicator.all_reduce(y, capture); })) {}

  std::vector<float> forward(const std::vector<float>& x) const {
    y.write(product(x, begin, end), stream);
    reduce.launch(stream);
    communicator.synchronize(stream);
    return y.read<float>(stream);
  }

  Device device;
  Stream stream;
  Communicator communicator;
  std::size_t begin, end;  // of the rows of W that this rank holds
  SymmetricBuffer y;
  Graph reduce;
};

void run_layer(Bootstrap& bootstrap) {
  const Layer layer(bootstrap);
  for (std::size_t step = 0; step < 3; ++step) {
    std::vector<float> x(kInputs);
    for (std::size_t input = 0; input < kInputs; ++input) x[input] = static_cast<float>((input + step) % 5);
    const std::vector<float> y = layer.forward(x);
    if (y != product(x, 0, kInputs)) throw std::runtime_error("y is not the product on one rank");
    std::printf("rank %zu, step %zu: %g %g %g\n", layer.communicator.rank(), step, y[0], y[1], y[2]);
  }
  layer.communicator.close();
}

void serve(Bootstrap& bootstrap, void (*trouble)()) {
  const Layer layer(bootstrap);
  const std::size_t rank = layer.communicator.rank();
  for (std::size_t step = 0;; ++step) {
    if (rank == 1 && step == 2) trouble();
    try {
      layer.forward(std::vector<float>(kInputs, 1.0f));
    } catch (const Error& error) {
      std::printf("rank %zu, step %zu: %s\n", rank, step, error.what());
      break;
    }
  }
  try {
    layer.communicator.close();
  } catch (const Error&) {
  }
}

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const auto late = [] { std::this_thread::sleep_for(std::chrono::seconds(4)); };
  const auto death = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::abort();
  };
  if (what == "threads") threads();
  if (what == "sum") sum(*processes());
  if (what == "layer") run_layer(*processes());
  if (what == "late") serve(*processes(), late);
  if (what == "death") serve(*processes(), death);
}
