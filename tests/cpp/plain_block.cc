// A user's own kernel on the CPU with the headers alone: called as a function, by a thread for every rank.
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "symmetra/device/peer.cuh"
#include "symmetra/device/signal.cuh"

using namespace symmetra;

namespace {

constexpr uint32_t kWorld = 3;

/// Stores a number, meets the others, and adds theirs up; false when it gave up.
bool meet(const device::SignalPad& pad, device::PeerView<float> view, float* sum) {
  platform::each(1, [&](uint32_t) { *view.mine() = static_cast<float>(1 << view.rank()); });
  if (!device::barrier(pad, device::Channel{3})) return false;
  platform::each(view.world(), [&](uint32_t rank) { *sum += *view.of(rank); });
  return true;
}

/// The memory of a group for one rank.
struct Rank {
  uint32_t pad[16 * device::kMaxWorld] = {}, sent[16 * device::kMaxWorld] = {}, awaited[16 * device::kMaxWorld] = {};
  device::Progress progress{};
  device::Status status{};
  float value = 0, sum = 0;
  bool met = false;
};

}  // namespace

int main() {
  alarm(60);
  std::vector<Rank> ranks(kWorld);
  device::PeerTable table{};
  for (uint32_t rank = 0; rank < kWorld; ++rank) table.address[rank] = &ranks[rank].value;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      Rank& own = ranks[rank];
      device::SignalPad pad{{}, own.sent, own.awaited, {&own.progress, &own.status, 30'000'000'000}, rank, kWorld};
      for (uint32_t peer = 0; peer < kWorld; ++peer) pad.pads[peer] = ranks[peer].pad;
      own.met = meet(pad, device::PeerView<float>(&table, 0, rank, kWorld), &own.sum);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    if (!rank.met || rank.sum != 7) return 1;
  }
  std::printf("%u blocks met\n", kWorld);
}
