#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/launch.hpp"
#include "symmetra/src/capi/heap.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::queue_of;

device::Heap Communicator::heap(Queue queue) const {
  const core::Group group{&live(communicator_), nullptr};
  return call([&] { return core::heap_view(group, core::MaybeSize{false, 0}, queue_of(queue)); });
}

device::Heap Communicator::heap(std::chrono::milliseconds deadline, Queue queue) const {
  const core::Group group{&live(communicator_), nullptr};
  const core::MaybeSize limit{true, core::milliseconds(deadline)};
  return call([&] { return core::heap_view(group, limit, queue_of(queue)); });
}

bool Communicator::has_native_atomics() const {
  const core::Group group{&live(communicator_), nullptr};
  return call([&] { return core::heap_has_native_atomics(group); });
}

void launch_bytes(HostShape shape, void (*entry)(const void* launched), const void* launched, std::size_t bytes, Queue queue) {
  const rust::Slice<const std::uint8_t> args(static_cast<const std::uint8_t*>(launched), bytes);
  call([&] { core::launch_host(reinterpret_cast<std::uintptr_t>(entry), args, shape.blocks, shape.threads, queue_of(queue)); });
}

}  // namespace symmetra
