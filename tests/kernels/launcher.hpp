// Ranks as groups of OS threads over memory of one process: enough of a device to run kernels. A rank's launches run in
// order; ranks run concurrently.
#pragma once
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/geometry.hpp"
#include "kernels/host/kernels.hpp"
#include "symmetra/device/platform/host.hpp"

namespace launcher {

using symmetra::kernels::Geometry;

/// Raw bytes, aligned to 64, freed by the destructor.
class Memory {
 public:
  explicit Memory(size_t bytes, int fill = 0) : bytes_((bytes + 63) / 64 * 64 + 64), data_(std::aligned_alloc(64, bytes_)) {
    std::memset(data_.get(), fill, bytes_);
  }
  template <class T = uint8_t>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<void, Free> data_;
};

/// One kernel launch of one rank.
struct Launch {
  std::function<void()> kernel;  ///< one device thread's run
  Geometry geometry;
};

/// Runs a rank's launches in order on blocks x threads OS threads, as many as the largest needs.
class Rank {
 public:
  explicit Rank(const std::vector<Launch>& launches) {
    uint32_t blocks = 0, threads = 0;
    for (const Launch& launch : launches) {
      blocks = std::max(blocks, launch.geometry.blocks);
      threads = std::max(threads, launch.geometry.threads);
    }
    stream_ = std::make_unique<std::barrier<>>(blocks * threads);
    for (const Launch& launch : launches) {
      for (uint32_t block = 0; block < launch.geometry.blocks; ++block) {
        barriers_.emplace_back(launch.geometry.threads);
        shared_.emplace_back(launch.geometry.shared_bytes, 0xA5);
      }
    }
    for (uint32_t block = 0; block < blocks; ++block) {
      for (uint32_t thread = 0; thread < threads; ++thread) {
        threads_.emplace_back([this, &launches, block, thread] { work(launches, block, thread); });
      }
    }
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work(const std::vector<Launch>& launches, uint32_t block, uint32_t thread) {
    size_t first = 0;
    for (const Launch& launch : launches) {
      const Geometry& geometry = launch.geometry;
      if (block < geometry.blocks && thread < geometry.threads) {
        symmetra::platform::host::current = {thread,          geometry.threads,          block,
                                             geometry.blocks, &barriers_[first + block], shared_[first + block].as()};
        launch.kernel();
      }
      first += geometry.blocks;
      stream_->arrive_and_wait();
    }
  }

  std::unique_ptr<std::barrier<>> stream_;
  std::deque<std::barrier<>> barriers_;
  std::deque<Memory> shared_;
  std::vector<std::thread> threads_;
};

/// Runs the launches of several ranks at the same time, to their end.
inline void run(const std::vector<std::vector<Launch>>& ranks) {
  std::deque<Rank> running;
  for (const auto& launches : ranks) {
    if (!launches.empty()) running.emplace_back(launches);
  }
  for (Rank& rank : running) rank.join();
}

}  // namespace launcher
