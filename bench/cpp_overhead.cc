// The host's time for one eager all-reduce of 1 KiB of bf16 through the C++ API, called and bound, as `symmetra-bench overhead`
// measures it through the Rust API: ranks as threads, medians over rounds of the slowest rank.
//   cpp_overhead [host|cuda] [RANKS] [CALLS] [ROUNDS]
// Prints one JSON object. Built by bench/build.sh.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <vector>

#include "symmetra/symmetra.hpp"

using namespace symmetra;

namespace {

constexpr std::size_t kBytes = 1024;

struct Settings {
  bool cuda;
  std::size_t calls, rounds;
};

/// Times of one call in every round, in microseconds.
struct Times {
  std::vector<double> call_us, bound_us;
};

/// The times of one rank.
Times run(Bootstrap& bootstrap, const Settings& settings) {
  const Device device = settings.cuda ? Device::cuda(bootstrap.rank()) : Device::host();
  const Stream stream(device);
  const Communicator communicator = Communicator::open(bootstrap, device);
  const SymmetricBuffer input = communicator.symmetric(kBytes / 2, Dtype::kBF16);
  const SymmetricBuffer output = communicator.symmetric(kBytes / 2, Dtype::kBF16);
  const BoundAllReduce bound = communicator.bind_all_reduce(input, output);
  const auto time_us = [&](const auto& enqueue) {
    const auto began = std::chrono::steady_clock::now();
    for (std::size_t call = 0; call < settings.calls; ++call) enqueue();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    communicator.synchronize(stream);
    return took.count() / static_cast<double>(settings.calls);
  };
  Times times;
  for (std::size_t round = 0; round <= settings.rounds; ++round) {
    const double call_us = time_us([&] { communicator.all_reduce(input, output, stream); });
    const double bound_us = time_us([&] { bound.enqueue(stream); });
    // The first round loads the kernels.
    if (round == 0) continue;
    times.call_us.push_back(call_us);
    times.bound_us.push_back(bound_us);
  }
  communicator.close();
  return times;
}

/// The median over the rounds of the slowest rank's time.
double median_of_slowest(const std::vector<Times>& ranks, std::vector<double> Times::*which) {
  std::vector<double> slowest = ranks.front().*which;
  for (const Times& times : ranks) {
    for (std::size_t round = 0; round < slowest.size(); ++round) slowest[round] = std::max(slowest[round], (times.*which)[round]);
  }
  std::sort(slowest.begin(), slowest.end());
  return slowest[slowest.size() / 2];
}

std::size_t number(int argc, char** argv, int at, std::size_t otherwise) {
  return argc > at ? std::strtoul(argv[at], nullptr, 10) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings{argc > 1 && std::string(argv[1]) == "cuda", number(argc, argv, 3, 200), number(argc, argv, 4, 51)};
  const std::size_t world = number(argc, argv, 2, 2);
  try {
    const auto ranks = bootstrap::threads(world);
    std::vector<std::future<Times>> running;
    for (const auto& rank : ranks) {
      running.push_back(std::async(std::launch::async, [&rank, &settings] { return run(*rank, settings); }));
    }
    std::vector<Times> times;
    for (auto& rank : running) times.push_back(rank.get());
    std::cout << "{\"language\": \"c++\", \"device\": \"" << (settings.cuda ? "cuda" : "host") << "\", \"ranks\": " << world
              << ", \"bytes\": " << kBytes << ", \"calls\": " << settings.calls << ", \"rounds\": " << settings.rounds
              << ", \"call_us\": " << median_of_slowest(times, &Times::call_us)
              << ", \"bound_us\": " << median_of_slowest(times, &Times::bound_us) << "}" << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
