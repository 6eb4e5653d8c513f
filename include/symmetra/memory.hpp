/// \file
/// Memory that collectives read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "symmetra/device.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class ConstOperand;
class SignalPad;

namespace core {
struct Operand;
struct Tensor;

Operand operand_of(const ConstOperand& operand);
Dtype operand_dtype(const ConstOperand& operand);

// Throws kInvalidArgument unless both are equal.
void check_dtype(Dtype asked, Dtype actual);
void check_count(std::size_t given, std::size_t actual);

/// Base of the memory class `Memory`, which has data() and dtype(): the address as a pointer to elements.
template <class Memory>
class Typed {
 public:
  /// The address of the elements as T*. Throws kInvalidArgument for another type than the memory's, and the errors of
  /// data().
  template <class T>
  T* data() const {
    const Memory& memory = static_cast<const Memory&>(*this);
    check_dtype(DtypeOf<T>::kValue, memory.dtype());
    return static_cast<T*>(memory.data());
  }
};
}  // namespace core

namespace nvshmem {
class Session;
}  // namespace nvshmem

/// `count` elements of symmetric memory. Every rank has a buffer at the same offset of its arena, and peers can address
/// it. Collectives on it are zero-copy and need no registration. Made by Communicator::symmetric; starts as zeros.
/// Move-only; usable from any thread.
///
/// Destroying it is immediate and does not block. Its space is reused once every rank has destroyed its buffer and
/// makes another. It may outlive its Communicator.
class SymmetricBuffer : public core::Typed<SymmetricBuffer> {
 public:
  SymmetricBuffer(SymmetricBuffer&&) noexcept = default;
  SymmetricBuffer& operator=(SymmetricBuffer&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  /// The address of this rank's elements, for its device.
  void* data() const;
  /// `data<T>()`: the address of this rank's elements as T*.
  using core::Typed<SymmetricBuffer>::data;
  /// The address of rank `rank`'s elements, for this rank's device. Valid until the communicator is closed. Throws kInvalidArgument for a
  /// rank outside the group, kClosed after close, the group's error if the group has failed.
  void* peer_data(std::size_t rank) const;
  /// The table of all ranks' arenas, in device memory, and this buffer's offset in them: your own kernel passes both to
  /// symmetra::device::PeerView. Valid until the communicator is closed.
  const kernels::PeerTable* peer_table() const;
  std::uint64_t offset_bytes() const;
  /// The elements from element `start` on by multicast, for a user kernel: the argument of symmetra::device::Multicast.
  /// Ordinary accesses must not use its address. Does not communicate and does not block. Valid until the communicator
  /// is closed. Throws kUnsupported, with the reason, if multicast is not open (see Config::multicast);
  /// kInvalidArgument for a start beyond count(), or a start that is not a multiple of 16 bytes; kClosed after close;
  /// the group's error if the group has failed.
  device::MulticastData multicast_data(std::size_t start = 0) const;

  /// The buffer's signal pad. It shares ownership of the buffer.
  SignalPad signals() const;

  /// Copies count() elements from host memory at `values`, after earlier work of `stream`. Blocks until the copy is done. Throws
  /// kInvalidArgument for a stream of another device, kUnsupported while it is being captured, kDevice if the copy fails.
  void write(const void* values, const Stream& stream) const;
  /// Copies count() elements to host memory at `values`, after earlier work of `stream`. Blocks until the copy is done.
  /// Throws the errors of write; the group's error if a collective gave up, because the elements may then be old;
  /// kMismatch if the ranks made different calls.
  void read(void* values, const Stream& stream) const;
  /// Copies from and to vectors. Throw kInvalidArgument for another type or length than the buffer's, and the errors of
  /// write.
  template <class T>
  void write(const std::vector<T>& values, const Stream& stream) const;
  template <class T>
  std::vector<T> read(const Stream& stream) const;

 private:
  friend class Communicator;
  friend class ConstOperand;
  friend class SignalPad;
  explicit SymmetricBuffer(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// Device memory for `count` elements that no peer can address. Contents start undefined. Move-only;
/// usable from any thread. Destroying it waits for the device, as the runtime's own free does.
class DeviceBuffer : public core::Typed<DeviceBuffer> {
 public:
  /// Allocates `count` elements on `device`. Throws kOutOfMemory, or kInvalidArgument when the size overflows.
  DeviceBuffer(const Device& device, std::size_t count, Dtype dtype);

  DeviceBuffer(DeviceBuffer&&) noexcept = default;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  /// The buffer's device address; null when empty.
  void* data() const;
  /// `data<T>()`: the buffer's device address as T*.
  using core::Typed<DeviceBuffer>::data;

  /// Copies count() elements from or to the host, after earlier work of `stream`. Blocks. Throws the errors of
  /// SymmetricBuffer::write. A read of plain memory does not report collective failures: after a collective that gave
  /// up, it returns old values. Call Communicator::synchronize before a read.
  void write(const void* values, const Stream& stream) const;
  void read(void* values, const Stream& stream) const;
  template <class T>
  void write(const std::vector<T>& values, const Stream& stream) const;
  template <class T>
  std::vector<T> read(const Stream& stream) const;

 private:
  friend class Coordinator;
  friend class ConstOperand;
  explicit DeviceBuffer(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// The caller's memory, registered with all ranks by Communicator::adopt. Move-only; usable from any thread.
///
/// If every rank's memory can be shared, peers address it directly (zero-copy). If one rank's cannot (pool, mapped by
/// address ranges, managed, host memory), messages pass through the arena, with equal results; see is_shared().
///
/// An operand of a call may be the whole memory, a part, elements of any type at a byte offset, or any address in the memory: the
/// communicator finds an operand by its address. So a pool that is adopted as a whole takes one registration, for eager calls and for
/// graphs. One operand lies at one offset on every rank. Config::check_calls and Graph::register_pointers compare offsets;
/// Operand::through_scratch is for an operand whose offset differs. After this object is destroyed, which all ranks do between the same
/// calls, an operand by address is plain memory again.
///
/// The memory must stay allocated until every rank has closed or destroyed its communicator, even if this object is
/// destroyed earlier; Communicator::adopt explains why.
class Adopted {
 public:
  Adopted(Adopted&&) noexcept = default;
  Adopted& operator=(Adopted&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  void* data() const;
  /// Whether peers address the memory directly. Equal on every rank.
  bool is_shared() const;
  /// The address of rank `rank`'s elements, for this rank's device. Valid until the communicator is closed. Throws kInvalidArgument for a
  /// rank outside the group, kUnsupported unless is_shared(), kClosed after close, the group's error if the group has failed.
  void* peer_data(std::size_t rank) const;

 private:
  friend class Communicator;
  friend class ConstOperand;
  friend class nvshmem::Session;
  explicit Adopted(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// Memory that a collective reads. Made by conversion in a call; must not outlive its source.
class ConstOperand {
 public:
  ConstOperand(const SymmetricBuffer& buffer) : extent_(Extent::kWhole), core_(buffer.core_.get()) {}
  /// `count` elements from element `start`; `start` is equal on every rank.
  ConstOperand(const SymmetricBuffer& buffer, std::size_t start, std::size_t count)
      : extent_(Extent::kPart), core_(buffer.core_.get()), start_(start), count_(count) {}
  ConstOperand(const DeviceBuffer& buffer) : extent_(Extent::kWhole), core_(buffer.core_.get()) {}
  ConstOperand(const Adopted& adopted) : extent_(Extent::kWhole), core_(adopted.core_.get()) {}
  /// `count` elements from element `start`; `start` is equal on every rank.
  ConstOperand(const Adopted& adopted, std::size_t start, std::size_t count)
      : extent_(Extent::kPart), core_(adopted.core_.get()), start_(start), count_(count) {}
  /// `count` elements of `dtype` from byte `offset_bytes` of the memory on, for memory of any type; `offset_bytes` is
  /// equal on every rank. A call throws kInvalidArgument for elements outside the memory, and for an address that is
  /// not aligned to the type.
  ConstOperand(const Adopted& adopted, std::size_t offset_bytes, std::size_t count, Dtype dtype)
      : extent_(Extent::kTyped), core_(adopted.core_.get()), start_(offset_bytes), count_(count), dtype_(dtype) {}
  /// The caller's memory: `count` elements at `address`, which the device can read. It stays valid until all work
  /// enqueued with it is done; in a capture, until the graph and its last launch are gone.
  ConstOperand(const void* address, std::size_t count, Dtype dtype)
      : extent_(Extent::kAddress), address_(address), count_(count), dtype_(dtype) {}
  template <class T>
  ConstOperand(const T* address, std::size_t count) : ConstOperand(address, count, DtypeOf<T>::kValue) {}

  /// The operand, sent through scratch although its address lies in adopted memory: for offsets that differ between
  /// ranks. All ranks do so. No effect for an operand that is not an address.
  ConstOperand through_scratch() const {
    ConstOperand operand = *this;
    operand.pushed_ = true;
    return operand;
  }

 private:
  friend class Operand;
  friend core::Operand core::operand_of(const ConstOperand& operand);
  /// The kind of operand: the caller's memory, a part of an object, elements of another type there, or a whole object.
  enum class Extent { kAddress, kPart, kTyped, kWhole };

  Extent extent_;
  const core::Tensor* core_ = nullptr;
  const void* address_ = nullptr;
  std::size_t start_ = 0;
  std::size_t count_ = 0;
  Dtype dtype_ = Dtype::kF32;
  bool pushed_ = false;
};

/// Memory that a collective writes, or reads and writes. Made by conversion in a call; must not outlive its source.
class Operand : public ConstOperand {
 public:
  Operand(const SymmetricBuffer& buffer) : ConstOperand(buffer) {}
  /// `count` elements from element `start`; `start` is equal on every rank.
  Operand(const SymmetricBuffer& buffer, std::size_t start, std::size_t count) : ConstOperand(buffer, start, count) {}
  Operand(const DeviceBuffer& buffer) : ConstOperand(buffer) {}
  Operand(const Adopted& adopted) : ConstOperand(adopted) {}
  /// `count` elements from element `start`; `start` is equal on every rank.
  Operand(const Adopted& adopted, std::size_t start, std::size_t count) : ConstOperand(adopted, start, count) {}
  /// `count` elements of `dtype` from byte `offset_bytes` of the memory on: see ConstOperand.
  Operand(const Adopted& adopted, std::size_t offset_bytes, std::size_t count, Dtype dtype)
      : ConstOperand(adopted, offset_bytes, count, dtype) {}
  /// The caller's memory: `count` elements at `address`, which the device can read and write. It stays valid until all
  /// work enqueued with it is done; in a capture, until the graph and its last launch are gone.
  Operand(void* address, std::size_t count, Dtype dtype) : ConstOperand(address, count, dtype) {}
  template <class T>
  Operand(T* address, std::size_t count, Dtype dtype) : Operand(writable(address), count, dtype) {}
  template <class T>
  Operand(T* address, std::size_t count) : Operand(writable(address), count, DtypeOf<std::remove_const_t<T>>::kValue) {}

  /// The operand, sent through scratch: see ConstOperand.
  Operand through_scratch() const {
    Operand operand = *this;
    operand.pushed_ = true;
    return operand;
  }

 private:
  template <class T>
  static void* writable(T* address) {
    static_assert(!std::is_const_v<T>, "symmetra writes to this operand, but its memory is const");
    return const_cast<std::remove_const_t<T>*>(address);
  }
};

template <class T>
void SymmetricBuffer::write(const std::vector<T>& values, const Stream& stream) const {
  core::check_dtype(DtypeOf<T>::kValue, dtype());
  core::check_count(values.size(), count());
  write(static_cast<const void*>(values.data()), stream);
}

template <class T>
std::vector<T> SymmetricBuffer::read(const Stream& stream) const {
  core::check_dtype(DtypeOf<T>::kValue, dtype());
  std::vector<T> values(count());
  read(static_cast<void*>(values.data()), stream);
  return values;
}

template <class T>
void DeviceBuffer::write(const std::vector<T>& values, const Stream& stream) const {
  core::check_dtype(DtypeOf<T>::kValue, dtype());
  core::check_count(values.size(), count());
  write(static_cast<const void*>(values.data()), stream);
}

template <class T>
std::vector<T> DeviceBuffer::read(const Stream& stream) const {
  core::check_dtype(DtypeOf<T>::kValue, dtype());
  std::vector<T> values(count());
  read(static_cast<void*>(values.data()), stream);
  return values;
}

}  // namespace symmetra
