// A kernel that Rust launches on the CPU.
#include "symmetra/device/heap.cuh"
#include "symmetra/device/peer.cuh"

using namespace symmetra;

/// The C++ counterpart of `Counting` in lib.rs.
struct Counting {
  device::Heap heap;
  device::PeerView<std::uint32_t> counters;
  device::SignalPad pad;
};

/// Adds each thread's number to this rank's word on every rank, and meets the others on both pads.
extern "C" void count_threads(const Counting* counting) {
  const device::Heap& heap = counting->heap;
  std::uint32_t* const word = counting->counters.mine() + heap.signals.rank;
  for (std::uint32_t rank = 0; rank < heap.signals.world; ++rank) {
    device::fetch_add(heap, word, device::Rank{rank}, 1 + platform::thread() + 10 * platform::block());
  }
  if (platform::block() != 0) return;
  device::barrier(counting->pad, device::Channel{3});
  device::barrier(heap.signals, device::Channel{0});
}
