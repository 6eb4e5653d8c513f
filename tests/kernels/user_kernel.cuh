// A user's kernel with the headers of include/symmetra/device, on every platform.
#pragma once
#include "symmetra/device/peer.cuh"
#include "symmetra/device/signal.cuh"

namespace trial {

/// One block of every rank: adds to the next rank's `count` words, meets the others, adds its own words up, and
/// notifies the previous rank that its words may be written again. Channels 0 and 1.
SYMMETRA_DEVICE void meet_neighbours(const symmetra::device::SignalPad& pad, const symmetra::device::PeerView<uint32_t>& view,
                                     uint32_t* sum, uint32_t count) {
  using namespace symmetra;
  const uint32_t next = (view.rank() + 1) % view.world(), previous = (view.rank() + view.world() - 1) % view.world();
  for (uint32_t i = platform::thread(); i < count; i += platform::threads()) view.of(next)[i] += view.rank() + i;
  if (!device::barrier(pad, device::Channel{0})) return;
  if (platform::thread() != 0) return;
  for (uint32_t i = 0; i < count; ++i) *sum += view.mine()[i];
  device::put(pad, device::Rank{previous}, device::Channel{1});
  device::wait(pad, device::Rank{next}, device::Channel{1});
}

}  // namespace trial
