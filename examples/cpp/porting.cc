// docs/porting.md in full: an engine's own all-reduce class, the class that takes its place, and one engine that runs both: `porting
// [RANKS]`. The engine's streams and captures are those of the host device, and its ranks are threads; on a GPU `native` is a cudaStream_t.
#include <atomic>
#include <cstdint>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "symmetra/symmetra.hpp"
using namespace symmetra;

// Peers exchange the addresses of their pools (processes with GPUs exchange IPC handles), and a kernel reads all inputs between barriers.
namespace before {

class CustomAllReduce {
 public:
  static constexpr std::size_t kMostRanks = 8, kMostBytes = 8 << 20;

  CustomAllReduce(Bootstrap& ranks, const Device& device, char* pool, std::size_t bytes)
      : ranks_(&ranks), device_(&device), own_(ranks.rank()), world_(ranks.world_size()), pool_(pool), pool_bytes_(bytes) {
    if (world_ > kMostRanks) throw std::runtime_error("too many ranks");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    Peer own{pool, &arrivals_}, all[kMostRanks];
    ranks.all_gather(&own, all, sizeof own, deadline);
    std::copy(all, all + world_, peers_);
  }

  void all_reduce(const float* input, float* output, std::size_t count, void* native) {
    const auto offset = static_cast<std::size_t>(reinterpret_cast<const char*>(input) - pool_);
    if (offset > pool_bytes_ || count * sizeof(float) > pool_bytes_ - offset) throw std::runtime_error("the input is not registered");
    if (count * sizeof(float) > kMostBytes || count % 4 != 0) throw std::runtime_error("call another library");
    Call call{own_, world_, offset, count, output, {}};
    std::copy(peers_, peers_ + world_, call.peers);
    launch({}, kernel, call, Stream::borrow(*device_, native));  // kernel<<<blocks, threads, 0, native>>>(call)
  }

  // Peers read the pool and the counter until all are here.
  void close() { ranks_->barrier(std::chrono::steady_clock::now() + std::chrono::seconds(60)); }

 private:
  struct Peer {
    char* pool;
    std::atomic<std::uint64_t>* arrivals;
  };
  struct Call {
    std::size_t own, world, offset, count;
    float* output;
    Peer peers[kMostRanks];
  };

  static void meet(const Call& call) {
    const std::uint64_t all = call.peers[call.own].arrivals->fetch_add(1) + 1;
    for (std::size_t rank = 0; rank < call.world; ++rank)
      while (call.peers[rank].arrivals->load() < all) std::this_thread::yield();  // for ever, if a rank is gone
  }
  static void kernel(const Call& call) {
    meet(call);
    std::vector<float> sums(call.count);
    for (std::size_t rank = 0; rank < call.world; ++rank) {
      const auto* const input = reinterpret_cast<const float*>(call.peers[rank].pool + call.offset);
      for (std::size_t at = 0; at < call.count; ++at) sums[at] += input[at];
    }
    meet(call);  // all have read
    std::copy(sums.begin(), sums.end(), call.output);
  }

  Bootstrap* ranks_;
  const Device* device_;
  std::size_t own_, world_;
  char* pool_;
  std::size_t pool_bytes_;
  std::atomic<std::uint64_t> arrivals_{0};
  Peer peers_[kMostRanks] = {};
};

}  // namespace before

namespace after {

class CustomAllReduce {
 public:
  CustomAllReduce(Bootstrap& ranks, const Device& device, char* pool, std::size_t bytes)
      : device_(&device), communicator_(Communicator::open(ranks, device)), pool_(communicator_.adopt_bytes(pool, bytes)) {}

  // Any count and any address; in the pool, at an offset that is equal on all ranks, it is zero-copy.
  void all_reduce(const float* input, float* output, std::size_t count, void* native) {
    communicator_.all_reduce({input, count}, {output, count}, of(native));
  }

  // Reports failures of the stream's work: the Error names a dead or late rank.
  void synchronize(void* native) { communicator_.synchronize(of(native)); }

  // By the thread that destroys a stream, before it does.
  void leave(void* native) {
    communicator_.leave(of(native));
    streams_.erase(native);
  }

  // On all ranks, when no graph is launched any more. The pool may be freed afterwards.
  void close() { communicator_.close(); }

 private:
  const Stream& of(void* native) {
    const auto found = streams_.find(native);
    return found != streams_.end() ? found->second : streams_.emplace(native, Stream::borrow(*device_, native)).first->second;
  }

  const Device* device_;
  Communicator communicator_;
  Adopted pool_;
  std::map<void*, Stream> streams_;
};

}  // namespace after

// An engine: a pool with the tensors of a layer, one eager step, and a graph of 20 steps that it captures itself.
template <class AllReduce>
bool run(Bootstrap& ranks, const char* name) {
  const Device device = Device::host();
  const Stream engines(device);
  constexpr std::size_t kCount = 4096, kTensors = 40;
  const DeviceBuffer pool(device, kCount * kTensors, Dtype::kF32);
  pool.write(std::vector<float>(pool.count(), static_cast<float>(ranks.rank() + 1)), engines);
  auto* const tensors = pool.data<float>();
  AllReduce sums(ranks, device, static_cast<char*>(pool.data()), pool.count() * sizeof(float));
  const auto step = [&](std::size_t tensor) {
    sums.all_reduce(tensors + tensor * kCount, tensors + (tensor + 1) * kCount, kCount - 4 * tensor, engines.native());
  };
  step(38);
  NativeCapture capture = engines.begin_capture();  // cudaStreamBeginCapture(engines, ...)
  for (std::size_t number = 0; number < 38; number += 2) step(number);
  const NativeGraph graph = capture.end();
  graph.launch(engines);
  if constexpr (std::is_same_v<AllReduce, after::CustomAllReduce>) {
    sums.synchronize(engines.native());
    sums.leave(engines.native());
  }
  engines.synchronize();
  const std::vector<float> values = pool.read<float>(engines);
  const std::size_t world = ranks.world_size();
  const auto own = static_cast<float>(ranks.rank() + 1), sum = static_cast<float>(world * (world + 1) / 2);
  bool right = true;
  for (std::size_t at = 0; at < values.size(); ++at) {
    const std::size_t tensor = at / kCount, within = at % kCount;
    right &= values[at] == (tensor % 2 == 1 && within < kCount - 4 * (tensor - 1) ? sum : own);
  }
  std::cout << std::string(name) + ": rank " + std::to_string(ranks.rank()) + (right ? " ok\n" : " WRONG\n") << std::flush;
  sums.close();
  return right;
}

int main(int count, char** words) try {
  const auto ranks = bootstrap::threads(count > 1 ? std::stoul(words[1]) : 4);
  std::atomic<bool> right{true};
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&right, &rank] {
      try {
        if (!run<before::CustomAllReduce>(*rank, "before") || !run<after::CustomAllReduce>(*rank, "after")) right = false;
      } catch (const std::exception& error) {
        std::cerr << std::string(error.what()) + "\n";
        std::exit(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
