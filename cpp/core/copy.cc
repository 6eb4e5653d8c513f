// Enqueued copies.
#include "symmetra/copy.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/src/capi/copies.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;
using core::share;

HostBuffer::HostBuffer(const Device& device, std::size_t count, Dtype dtype)
    : core_(share(call([&] { return core::host_memory_new(live(device.core_), count, static_cast<std::uint32_t>(dtype)); }))) {}

std::size_t HostBuffer::count() const { return core::host_memory_count(live(core_)); }
Dtype HostBuffer::dtype() const { return static_cast<Dtype>(core::host_memory_dtype(live(core_))); }

void* HostBuffer::data() const {
  return reinterpret_cast<void*>(call([&] { return core::host_memory_address(live(core_)); }));
}

void copy(ConstOperand from, Operand to, Queue queue) {
  const core::Operand source = operand_of(from), destination = operand_of(to);
  call([&] { core::copy(source, destination, queue_of(queue)); });
}

void copy_from_host(const HostBuffer& from, Operand to, Queue queue) {
  const core::Operand destination = operand_of(to);
  call([&] { core::copy_from_host(live(from.core_), destination, queue_of(queue)); });
}

void copy_to_host(ConstOperand from, const HostBuffer& to, Queue queue) {
  const core::Operand source = operand_of(from);
  call([&] { core::copy_to_host(source, live(to.core_), queue_of(queue)); });
}

}  // namespace symmetra
