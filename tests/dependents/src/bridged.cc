#include "dependent/src/bridged.hpp"

#include "symmetra/symmetra.hpp"

float reduced(float value) {
  const auto ranks = symmetra::bootstrap::threads(1);
  const symmetra::Device device = symmetra::Device::host();
  const symmetra::Stream stream(device);
  const auto communicator = symmetra::Communicator::open(*ranks[0], device);
  const auto buffer = communicator.symmetric<float>(1);
  buffer.write(std::vector<float>{value}, stream);
  communicator.all_reduce(buffer, stream);
  const float result = buffer.read<float>(stream)[0];
  communicator.close();
  return result;
}
