#include "symmetra/memory.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/signal.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

namespace core {

namespace {

void* address_of(const Tensor& tensor) { return reinterpret_cast<void*>(tensor_address(tensor)); }

Dtype dtype_of(const Tensor& tensor) { return static_cast<Dtype>(tensor_dtype(tensor)); }

/// Copies the whole tensor, in or out.
void write_all(const Tensor& tensor, const void* values, const Stream& stream) {
  call([&] { tensor_write(tensor, static_cast<const std::uint8_t*>(values), stream); });
}

void read_all(const Tensor& tensor, void* values, const Stream& stream) {
  call([&] { tensor_read(tensor, static_cast<std::uint8_t*>(values), stream); });
}

}  // namespace

Operand operand_of(const ConstOperand& operand) {
  using Extent = ConstOperand::Extent;
  if (operand.extent_ != Extent::kAddress && operand.core_ == nullptr) throw_moved_from();
  const std::size_t count = operand.extent_ == Extent::kWhole ? tensor_count(*operand.core_) : operand.count_;
  // Rust writes only to outputs.
  auto* const address = static_cast<std::uint8_t*>(const_cast<void*>(operand.address_));
  const bool typed = operand.extent_ == Extent::kTyped;
  return Operand{operand.core_, address, operand.start_, count, static_cast<std::uint32_t>(operand.dtype_), typed, operand.pushed_};
}

symmetra::Dtype operand_dtype(const ConstOperand& operand) {
  const Operand core = operand_of(operand);
  return core.tensor == nullptr || core.typed ? static_cast<Dtype>(core.dtype) : dtype_of(*core.tensor);
}

void check_dtype(Dtype asked, Dtype actual) {
  if (asked == actual) return;
  throw Error(ErrorKind::kInvalidArgument, "the type is " + name(asked) + ", but the memory holds " + name(actual));
}

void check_count(std::size_t given, std::size_t actual) {
  if (given == actual) return;
  throw Error(ErrorKind::kInvalidArgument,
              "the number of values is " + std::to_string(given) + ", but the buffer has " + std::to_string(actual));
}

}  // namespace core

std::size_t SymmetricBuffer::count() const { return core::tensor_count(live(core_)); }
Dtype SymmetricBuffer::dtype() const { return core::dtype_of(live(core_)); }
void* SymmetricBuffer::data() const { return core::address_of(live(core_)); }

void* SymmetricBuffer::peer_data(std::size_t rank) const {
  return reinterpret_cast<void*>(call([&] { return core::tensor_peer_address(live(core_), rank); }));
}

const kernels::PeerTable* SymmetricBuffer::peer_table() const {
  return reinterpret_cast<const kernels::PeerTable*>(call([&] { return core::tensor_peer_table(live(core_)); }));
}

std::uint64_t SymmetricBuffer::offset_bytes() const {
  return call([&] { return core::tensor_offset_bytes(live(core_)); });
}

device::MulticastData SymmetricBuffer::multicast_data(std::size_t start) const {
  return call([&] { return core::tensor_multicast(live(core_), start); });
}

SignalPad SymmetricBuffer::signals() const {
  live(core_);
  return SignalPad(core_);
}

void SymmetricBuffer::write(const void* values, const Stream& stream) const { core::write_all(live(core_), values, live(stream.core_)); }
void SymmetricBuffer::read(void* values, const Stream& stream) const { core::read_all(live(core_), values, live(stream.core_)); }

DeviceBuffer::DeviceBuffer(const Device& device, std::size_t count, Dtype dtype)
    : core_(share(call([&] { return core::tensor_on_device(live(device.core_), count, static_cast<std::uint32_t>(dtype)); }))) {}

std::size_t DeviceBuffer::count() const { return core::tensor_count(live(core_)); }
Dtype DeviceBuffer::dtype() const { return core::dtype_of(live(core_)); }
void* DeviceBuffer::data() const { return core::address_of(live(core_)); }
void DeviceBuffer::write(const void* values, const Stream& stream) const { core::write_all(live(core_), values, live(stream.core_)); }
void DeviceBuffer::read(void* values, const Stream& stream) const { core::read_all(live(core_), values, live(stream.core_)); }

std::size_t Adopted::count() const { return core::tensor_count(live(core_)); }
Dtype Adopted::dtype() const { return core::dtype_of(live(core_)); }
void* Adopted::data() const { return core::address_of(live(core_)); }
bool Adopted::is_shared() const { return core::tensor_is_shared(live(core_)); }

void* Adopted::peer_data(std::size_t rank) const {
  return reinterpret_cast<void*>(call([&] { return core::tensor_peer_address(live(core_), rank); }));
}

}  // namespace symmetra
