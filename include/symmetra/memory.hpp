/// \file
/// What collectives read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "symmetra/device.hpp"
#include "symmetra/device/abi.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class Operand;
class SignalPad;

namespace core {
struct Operand;
struct Tensor;

Operand operand_of(const symmetra::Operand& operand);
Dtype operand_dtype(const symmetra::Operand& operand);

// Throw kInvalidArgument unless both are the same.
void check_dtype(Dtype asked, Dtype actual);
void check_count(std::size_t given, std::size_t actual);
}  // namespace core

/// `count` elements of symmetric memory: every rank has one at the same place of its arena, and peers
/// address it. Collectives on it copy nothing and register nothing. Made by Communicator::symmetric;
/// starts as zeros. Move-only; usable from any thread.
///
/// Destroying it is free and immediate: the space is used again once every rank destroyed its buffer and
/// allocates another. It may outlive its Communicator.
class SymmetricBuffer {
 public:
  SymmetricBuffer(SymmetricBuffer&&) noexcept = default;
  SymmetricBuffer& operator=(SymmetricBuffer&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  /// The address of this rank's elements, for its device.
  void* data() const;
  /// The same, typed. Throws kInvalidArgument for another type than the buffer's.
  template <class T>
  T* data() const {
    core::check_dtype(DtypeOf<T>::kValue, dtype());
    return static_cast<T*>(data());
  }
  /// The address of a peer's elements, for the device of this rank. Valid until the communicator is
  /// closed. Throws kInvalidArgument for a rank outside the group, kClosed after close, the group's error when
  /// it failed.
  void* peer_data(std::size_t rank) const;
  /// The arenas of all ranks, in device memory, and where in them this buffer starts: what a kernel of
  /// yours gives to symmetra::device::PeerView. Valid until the communicator is closed.
  const kernels::PeerTable* peer_table() const;
  std::uint64_t offset_bytes() const;

  /// The signal pad that belongs to the buffer. It shares ownership of it.
  SignalPad signals() const;

  /// Copies count() elements from host memory at `values`, after what `stream` does so far. Blocks. Throws
  /// kInvalidArgument for a stream of another device, kUnsupported while it is being captured, kDevice
  /// when the copy fails.
  void write(const void* values, const Stream& stream) const;
  /// Copies count() elements to host memory at `values`, after what `stream` does so far. Blocks. Throws
  /// as write.
  void read(void* values, const Stream& stream) const;
  /// The same from and to vectors. Throw kInvalidArgument for another type or length than the buffer's.
  template <class T>
  void write(const std::vector<T>& values, const Stream& stream) const;
  template <class T>
  std::vector<T> read(const Stream& stream) const;

 private:
  friend class Communicator;
  friend class Operand;
  friend class SignalPad;
  explicit SymmetricBuffer(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// Device memory for `count` elements that no peer can address. Contents start undefined. Move-only;
/// usable from any thread. Destroying it waits for the device, as the runtime's own free does.
class DeviceBuffer {
 public:
  /// Throws kOutOfMemory, and kInvalidArgument when the size overflows.
  DeviceBuffer(const Device& device, std::size_t count, Dtype dtype);

  DeviceBuffer(DeviceBuffer&&) noexcept = default;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  /// Its address, for the device; null when empty.
  void* data() const;
  /// The same, typed. Throws kInvalidArgument for another type than the buffer's.
  template <class T>
  T* data() const {
    core::check_dtype(DtypeOf<T>::kValue, dtype());
    return static_cast<T*>(data());
  }

  /// As those of SymmetricBuffer.
  void write(const void* values, const Stream& stream) const;
  void read(void* values, const Stream& stream) const;
  template <class T>
  void write(const std::vector<T>& values, const Stream& stream) const;
  template <class T>
  std::vector<T> read(const Stream& stream) const;

 private:
  friend class Coordinator;
  friend class Operand;
  explicit DeviceBuffer(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// The caller's memory, made known to all ranks by Communicator::adopt. Move-only; usable from any thread.
///
/// Where every rank's memory can be shared, peers address it directly. Where one's cannot (from a pool,
/// mapped by address ranges, managed, of the host), messages are pushed through the arena, with the
/// same result: is_shared() tells. The memory must stay allocated until every rank has closed or destroyed its
/// communicator, not only as long as this object: Communicator::adopt says why.
class Adopted {
 public:
  Adopted(Adopted&&) noexcept = default;
  Adopted& operator=(Adopted&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  void* data() const;
  /// Whether peers address the memory directly. The same on every rank.
  bool is_shared() const;
  /// The address of a peer's elements, for the device of this rank. Valid until the communicator is
  /// closed. Throws kInvalidArgument for a rank outside the group, kUnsupported unless is_shared(), kClosed after
  /// close, the group's error when it failed.
  void* peer_data(std::size_t rank) const;

 private:
  friend class Communicator;
  friend class Operand;
  explicit Adopted(std::shared_ptr<core::Tensor> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Tensor> core_;
};

/// What a collective reads or writes. Made by conversion in a call; does not outlive what it was made of.
class Operand {
 public:
  Operand(const SymmetricBuffer& buffer) : extent_(Extent::kWhole), core_(buffer.core_.get()) {}
  /// `count` elements from `start`, the same on every rank.
  Operand(const SymmetricBuffer& buffer, std::size_t start, std::size_t count)
      : extent_(Extent::kPart), core_(buffer.core_.get()), start_(start), count_(count) {}
  Operand(const DeviceBuffer& buffer) : extent_(Extent::kWhole), core_(buffer.core_.get()) {}
  Operand(const Adopted& adopted) : extent_(Extent::kWhole), core_(adopted.core_.get()) {}
  /// The caller's memory: `count` elements at `address`, which the device can read and write. It stays
  /// valid until all work enqueued with it is done, and in a capture until the graph and its last
  /// launch are gone.
  Operand(void* address, std::size_t count, Dtype dtype) : extent_(Extent::kAddress), address_(address), count_(count), dtype_(dtype) {}
  template <class T>
  Operand(T* address, std::size_t count) : Operand(address, count, DtypeOf<T>::kValue) {}

 private:
  friend core::Operand core::operand_of(const Operand& operand);
  /// Of what it is: the caller's memory, elements of an object, or all of them.
  enum class Extent { kAddress, kPart, kWhole };

  Extent extent_;
  const core::Tensor* core_ = nullptr;
  void* address_ = nullptr;
  std::size_t start_ = 0;
  std::size_t count_ = 0;
  Dtype dtype_ = Dtype::kF32;
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
