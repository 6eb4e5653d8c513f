#include "symmetra/signal.hpp"

#include <algorithm>
#include <iterator>

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::queue_of;

void SignalPad::put(std::size_t peer, std::size_t channel, Queue queue) const {
  call([&] { core::signal_put(live(core_), peer, channel, queue_of(queue)); });
}

void SignalPad::wait(std::size_t peer, std::size_t channel, Queue queue) const {
  call([&] { core::signal_wait(live(core_), peer, channel, queue_of(queue)); });
}

void SignalPad::barrier(std::size_t channel, Queue queue) const {
  call([&] { core::signal_barrier(live(core_), channel, queue_of(queue)); });
}

device::SignalPad SignalPad::view() const {
  const kernels::SignalArgs args = call([&] { return core::signal_view(live(core_)); });
  device::SignalPad pad{};
  std::copy(std::begin(args.pads), std::end(args.pads), std::begin(pad.pads));
  pad.sent = args.sent;
  pad.awaited = args.awaited;
  pad.wait = args.wait;
  pad.rank = args.rank;
  pad.world = args.world;
  return pad;
}

}  // namespace symmetra
