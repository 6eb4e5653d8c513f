// The kernels of gpu_initiated.cuh on the CPU, by ranks that are threads: `gpu_initiated [RANKS] [--time]`. Needs C++20.
// --time also times the all-gather and compares it with the library's.
#include "gpu_initiated.hpp"

#include <iostream>
#include <thread>

using namespace symmetra;

namespace {

template <class Call>
void kernel(const example::Work& work) {
  Call::run(work);
}

bool rank(Bootstrap& bootstrap, int timed_operations) try {
  const auto enqueue = [](auto call, const example::Work& work, Queue queue, const Stream&) {
    launch({3, 5}, &kernel<decltype(call)>, work, queue);
  };
  return example::run(bootstrap, Device::host(), enqueue, timed_operations);
} catch (const Error& error) {
  std::cerr << "rank " + std::to_string(bootstrap.rank()) + ": " + error.what() + "\n";
  return false;
}

}  // namespace

int main(int count, char** words) {
  constexpr int kOperations = 4;
  const bool times = count > 1 && example::asks_for_time(words[count - 1]);
  if (times) --count;
  const auto ranks = bootstrap::threads(count > 1 ? std::stoul(words[1]) : 4);
  std::vector<std::thread> threads;
  std::vector<char> good(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&, i] { good[i] = rank(*ranks[i], times ? kOperations : 0); });
  for (std::thread& thread : threads) thread.join();
  for (const char one : good) {
    if (one == 0) return 1;
  }
}
