// Enqueued copies of C++ callers: between buffers, and between a device and memory of the host, on streams and in graphs.

#include <algorithm>
#include <vector>

#include "ranks.hpp"

using namespace symmetra;

namespace {

constexpr std::size_t kCount = 5000;

std::vector<float> numbers(float first) {
  std::vector<float> values(kCount);
  for (std::size_t at = 0; at < kCount; ++at) values[at] = first + static_cast<float>(at);
  return values;
}

std::vector<float> contents(const HostBuffer& buffer) {
  const float* values = buffer.data<float>();
  return {values, values + buffer.count()};
}

void fill(const HostBuffer& buffer, const std::vector<float>& values) { std::copy(values.begin(), values.end(), buffer.data<float>()); }

void copies_on_a_stream() {
  const Device device = Device::host();
  const Stream stream(device);
  const DeviceBuffer first(device, kCount, Dtype::kF32), second(device, kCount, Dtype::kF32);
  const HostBuffer from(device, kCount, Dtype::kF32), to(device, kCount, Dtype::kF32);
  CHECK_EQ(from.count(), kCount);
  CHECK_EQ(from.dtype(), Dtype::kF32);
  CHECK(contents(from) == std::vector<float>(kCount));
  fill(from, numbers(1));
  copy_from_host(from, first, stream);
  copy(first, second, stream);
  copy_to_host(second, to, stream);
  CHECK(contents(to) == numbers(1));
  copy(second, second, stream);
}

void copies_of_a_symmetric_buffer() {
  test::ranks(2, [](Bootstrap& bootstrap) {
    const Device device = Device::host();
    const Stream stream(device);
    const Communicator communicator = Communicator::open(bootstrap, device);
    const SymmetricBuffer sum = communicator.symmetric<float>(kCount);
    const HostBuffer from(device, kCount, Dtype::kF32), to(device, 10, Dtype::kF32);
    fill(from, numbers(static_cast<float>(bootstrap.rank())));
    copy_from_host(from, sum, stream);
    communicator.all_reduce(sum, stream);
    copy_to_host(ConstOperand(sum, 20, 10), to, stream);
    communicator.synchronize(stream);
    for (std::size_t at = 0; at < 10; ++at) CHECK_EQ(contents(to)[at], static_cast<float>(2 * (20 + at) + 1));
    communicator.close();
  });
}

/// A graph copies the contents at the time of its launch, and keeps the memory of the host.
void copies_in_a_graph() {
  const Device device = Device::host();
  const Stream stream(device);
  const HostBuffer from(device, kCount, Dtype::kF32), to(device, kCount, Dtype::kF32);
  const Graph graph = [&] {
    const DeviceBuffer between(device, kCount, Dtype::kF32);
    const HostBuffer dropped(device, kCount, Dtype::kF32);
    return stream.capture([&](Capture& capture) {
      copy_from_host(dropped, between, capture);
      copy_from_host(from, between, capture);
      copy_to_host(between, to, capture);
    });
  }();
  for (const float first : {3.0F, 4.0F}) {
    fill(from, numbers(first));
    graph.launch(stream);
    CHECK(contents(to) == numbers(first));
  }
}

void refused_copies() {
  const Device device = Device::host();
  const Stream stream(device);
  const DeviceBuffer floats(device, 8, Dtype::kF32), integers(device, 8, Dtype::kI32), longer(device, 9, Dtype::kF32);
  const HostBuffer memory(device, 8, Dtype::kF32);
  CHECK_THROWS(kInvalidArgument, copy(floats, integers, stream));
  CHECK_THROWS(kInvalidArgument, copy(floats, longer, stream));
  CHECK_THROWS(kInvalidArgument, copy_from_host(memory, integers, stream));
  CHECK_THROWS(kInvalidArgument, copy_to_host(longer, memory, stream));
  CHECK_THROWS(kInvalidArgument, memory.data<int>());
  float* const values = floats.data<float>();
  CHECK_THROWS(kInvalidArgument, copy(ConstOperand(values, 6), Operand(values + 2, 6), stream));
  const HostBuffer none(device, 0, Dtype::kF32);
  CHECK(none.data() == nullptr);
}

}  // namespace

int main() {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"copies_on_a_stream", copies_on_a_stream},
               {"copies_of_a_symmetric_buffer", copies_of_a_symmetric_buffer},
               {"copies_in_a_graph", copies_in_a_graph},
               {"refused_copies", refused_copies}};
  for (const auto& test : cases) {
    test.run();
    std::printf("%s ok\n", test.name);
    std::fflush(stdout);
  }
}
