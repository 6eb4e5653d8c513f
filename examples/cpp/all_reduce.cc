// Ranks as processes that meet by a bootstrap of the program's own: `all_reduce [RANKS] [cuda]`.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>

#include "symmetra/symmetra.hpp"
using namespace symmetra;

struct Board final : Bootstrap {
  struct Shared {  // by the processes
    std::atomic<std::size_t> arrivals{0};
    char notes[16][4096];
  };
  Board(Shared& board, std::size_t rank, std::size_t ranks) : shared(board), own(rank), world(ranks) {}
  std::size_t rank() const override { return own; }
  std::size_t world_size() const override { return world; }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) override {
    if (bytes > sizeof shared.notes[0]) throw std::runtime_error(std::to_string(bytes) + " bytes do not fit a note");
    std::memcpy(shared.notes[own], send, bytes);
    barrier(deadline);
    for (std::size_t rank = 0; rank < world; ++rank) std::memcpy(static_cast<char*>(receive) + rank * bytes, shared.notes[rank], bytes);
    barrier(deadline);  // no rank writes the next note before all have read this one
  }
  void barrier(Deadline deadline) override {
    ++shared.arrivals;
    for (const std::size_t all = ++meetings * world; shared.arrivals < all; usleep(100))
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("a rank is missing");
  }
  Shared& shared;
  std::size_t own, world, meetings = 0;
};

// The engine keeps its bootstrap, stream (`Stream::borrow(device, cuda_stream)`) and pointers; it adds this function.
void sum_twice(Bootstrap& ranks, const Device& device, const Stream& stream, float* data, std::size_t count) {
  const Communicator communicator = Communicator::open(ranks, device);
  communicator.all_reduce(data, data, count, stream);       // enqueues and returns
  const Adopted adopted = communicator.adopt(data, count);  // peers can address it: zero-copy
  const Graph graph = stream.capture([&](Capture& capture) { communicator.all_reduce(adopted, capture); });
  graph.launch(stream);
  communicator.synchronize(stream);
  communicator.close();
}

int run(Board bootstrap, bool cuda) try {
  const Device device = cuda ? Device::cuda(bootstrap.rank()) : Device::host();
  // `native` stands for an engine's cudaStream_t; the host device has none.
  const Stream native(device), stream = cuda ? Stream::borrow(device, native.native()) : Stream(device);
  const DeviceBuffer tensor(device, 1 << 20, Dtype::kF32);  // stands for an engine's own memory
  tensor.write(std::vector<float>(tensor.count(), 1.0f), stream);
  sum_twice(bootstrap, device, stream, tensor.data<float>(), tensor.count());
  std::cout << "rank " + std::to_string(bootstrap.rank()) + ": " + std::to_string(tensor.read<float>(stream).back()) + "\n";
  return 0;
} catch (const Error& error) {
  std::cerr << "rank " + std::to_string(bootstrap.rank()) + ": " + error.what() + "\n";
  return 1;
}

int main(int count, char** words) {
  const std::size_t world = count > 1 ? std::stoul(words[1]) : 4;
  auto& shared = *new (mmap(nullptr, sizeof(Board::Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board::Shared;
  for (std::size_t rank = 0; rank < world; ++rank)
    if (fork() == 0) return run(Board(shared, rank, world), count > 2);
  for (int status = 0, failed = 0;; failed |= status)
    if (wait(&status) <= 0) return failed != 0;
}
