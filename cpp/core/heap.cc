#include <cstddef>
#include <cstring>
#include <string>

#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/device/platform/host.hpp"
#include "symmetra/launch.hpp"
#include "symmetra/src/capi/heap.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::queue_of;

device::Heap Communicator::heap(Queue queue) const {
  return call([&] { return core::heap_view(live(communicator_), core::MaybeSize{false, 0}, queue_of(queue)); });
}

device::Heap Communicator::heap(std::chrono::milliseconds deadline, Queue queue) const {
  const core::MaybeSize limit{true, core::milliseconds(deadline)};
  return call([&] { return core::heap_view(live(communicator_), limit, queue_of(queue)); });
}

bool Communicator::has_native_atomics() const {
  return call([&] { return core::heap_has_native_atomics(live(communicator_)); });
}

namespace {

/// A function of the program with its arguments. A program has its own copy of platform::host::current, because the
/// library's is hidden.
struct Placed {
  void (*entry)(const void* launched, const void* place);
  alignas(16) std::byte launched[core::kMostArgs + 16];
};

void run(const void* args) {
  const auto& placed = *static_cast<const Placed*>(args);
  placed.entry(placed.launched, &platform::host::current);
}

}  // namespace

void launch_bytes(HostShape shape, void (*entry)(const void* launched, const void* place), const void* launched, std::size_t bytes,
                  Queue queue) {
  Placed placed{entry, {}};
  if (bytes > sizeof(placed.launched)) {
    throw Error(ErrorKind::kInvalidArgument, "the size of a kernel's arguments is " + std::to_string(bytes) + ", but at most " +
                                                 std::to_string(sizeof(placed.launched)));
  }
  if (bytes > 0) std::memcpy(placed.launched, launched, bytes);
  const auto function = entry == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(&run);
  const rust::Slice<const std::uint8_t> args(reinterpret_cast<const std::uint8_t*>(&placed), sizeof(placed));
  call([&] { core::launch_host(function, args, shape.blocks, shape.threads, queue_of(queue)); });
}

}  // namespace symmetra
