// An engine whose one thread calls for all its devices, as llama.cpp with `-sm tensor`: `backends [DEVICES]`.
#include <future>
#include <iostream>

#include "symmetra/symmetra.hpp"
using namespace symmetra;

// A tensor of a backend. The engine has its own types in the place of these.
struct Tensor {
  void* data;
  std::size_t count;
  Dtype dtype;
  bool contiguous;
};

struct Rank {
  Stream stream;
  Communicator communicator;
};
using Comm = std::vector<Rank>;

// Opening is collective, so each rank opens on a thread. `streams` are those of the backends.
Comm comm_init(const std::vector<Device>& devices, const std::vector<void*>& streams) {
  const auto ranks = bootstrap::threads(devices.size());
  std::vector<std::future<Rank>> opening;
  for (std::size_t at = 0; at < ranks.size(); ++at)
    opening.push_back(std::async(std::launch::async, [&, at] {
      return Rank{Stream::borrow(devices[at], streams[at]), Communicator::open(*ranks[at], devices[at])};
    }));
  Comm comm;
  for (auto& rank : opening) comm.push_back(rank.get());
  return comm;
}

// Sums the tensors of all devices in place. Enqueues and returns. False before anything is enqueued: the engine then sums
// in its own way.
bool comm_allreduce_tensor(const Comm& comm, const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    const bool known = tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kF16 || tensor.dtype == Dtype::kBF16;
    if (!tensor.contiguous || !known) return false;
  }
  try {
    for (const Rank& rank : comm) rank.communicator.check();
  } catch (const Error&) {
    return false;
  }
  for (std::size_t at = 0; at < comm.size(); ++at) {
    const Tensor& tensor = tensors[at];
    const Operand operand(tensor.data, tensor.count, tensor.dtype);
    comm[at].communicator.all_reduce(operand, operand, comm[at].stream);
  }
  return true;
}

// After the last use. Each rank waits for its own device.
void comm_free(const Comm& comm) {
  for (const Rank& rank : comm) rank.communicator.depart();
}

int main(int argc, char** argv) try {
  const std::size_t count = argc > 1 ? std::stoul(argv[1]) : 2, rounds = 1000;
  std::vector<Device> devices;
  std::vector<Stream> streams;
  std::vector<DeviceBuffer> buffers;
  std::vector<void*> natives;
  std::vector<Tensor> tensors;
  for (std::size_t at = 0; at < count; ++at) {
    devices.push_back(Device::host());
    streams.emplace_back(devices[at]);
    natives.push_back(streams[at].native());
    buffers.emplace_back(devices[at], 5000, Dtype::kF32);
    buffers[at].write(std::vector<float>(5000, at == 0 ? 1.0f : 0.0f), streams[at]);
    tensors.push_back({buffers[at].data(), 5000, Dtype::kF32, true});
  }
  const Comm comm = comm_init(devices, natives);
  for (std::size_t round = 0; round < rounds; ++round) {
    // The sum over the devices is the value of device 0.
    for (std::size_t at = 1; at < count; ++at) buffers[at].write(std::vector<float>(5000, 0.0f), streams[at]);
    if (!comm_allreduce_tensor(comm, tensors)) return 1;
    for (const Rank& rank : comm) rank.communicator.synchronize(rank.stream);
  }
  tensors[0].contiguous = false;
  if (comm_allreduce_tensor(comm, tensors)) return 1;
  for (std::size_t at = 0; at < count; ++at)
    for (const float value : buffers[at].read<float>(streams[at]))
      if (value != 1.0f) return 1;
  comm_free(comm);
  std::cout << count << " devices: " << rounds << " sums\n";
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
