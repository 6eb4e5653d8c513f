// Sessions of NVSHMEM.
#include "symmetra/nvshmem.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/src/capi/mod.rs.h"
#include "symmetra/src/capi/nvshmem.rs.h"

namespace symmetra::nvshmem {

using core::call;
using core::live;
using core::share;

namespace {

/// The tensor whose ownership Rust passes.
std::shared_ptr<core::Tensor> taken(const core::Operand& operand) {
  return share(rust::Box<core::Tensor>::from_raw(const_cast<core::Tensor*>(operand.tensor)));
}

core::Operand memory_at(void* address, std::size_t count, Dtype dtype) {
  core::Operand memory{};
  memory.address = static_cast<std::uint8_t*>(address);
  memory.count = count;
  memory.dtype = static_cast<std::uint32_t>(dtype);
  return memory;
}

}  // namespace

Session Session::made(const Communicator& communicator, const std::string& library, bool joins) {
  const rust::Slice<const std::uint8_t> name(reinterpret_cast<const std::uint8_t*>(library.data()), library.size());
  return Session(share(call([&] { return core::shmem_open(live(communicator.communicator_), name, joins); })));
}

Session Session::open(const Communicator& communicator, const std::string& library) { return made(communicator, library, false); }
Session Session::join(const Communicator& communicator, const std::string& library) { return made(communicator, library, true); }

Adopted Session::symmetric(std::size_t count, Dtype dtype) const {
  return Adopted(taken(call([&] { return core::shmem_symmetric(live(core_), count, static_cast<std::uint32_t>(dtype)); })));
}

Adopted Session::adopt(void* address, std::size_t count, Dtype dtype) const {
  const core::Operand memory = memory_at(address, count, dtype);
  return Adopted(taken(call([&] { return core::shmem_adopt(live(core_), memory); })));
}

Mapped Session::map(const Communicator& communicator) const {
  return Mapped(share(call([&] { return core::shmem_map(live(core_), live(communicator.communicator_)); })));
}

void* Mapped::address_of(const SymmetricBuffer& buffer) const {
  const core::Operand operand = core::operand_of(buffer);
  return reinterpret_cast<void*>(call([&] { return core::shmem_address_of(live(core_), operand); }));
}

void Session::reclaim() const {
  call([&] { core::shmem_reclaim(live(core_)); });
}

std::size_t Session::memory_bytes() const { return core::shmem_bytes(live(core_)); }

void Session::close() const {
  call([&] { core::shmem_close(live(core_)); });
}

}  // namespace symmetra::nvshmem
