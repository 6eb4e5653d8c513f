/// \file
/// Enqueued copies within a device, and between a device and the memory of the program.
#pragma once

#include <cstddef>
#include <memory>

#include "symmetra/capture.hpp"
#include "symmetra/device.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct HostMemory;
}  // namespace core

/// Page-locked memory of the host for `count` elements, for copy_from_host and copy_to_host. Starts as zeros.
/// Move-only. Graphs share ownership of it. Destroying the last owner waits for the device.
class HostBuffer : public core::Typed<HostBuffer> {
 public:
  /// Allocates `count` elements for copies of `device`. Throws kOutOfMemory, kInvalidArgument when the size overflows,
  /// kDevice if the device cannot lock the pages.
  HostBuffer(const Device& device, std::size_t count, Dtype dtype);

  HostBuffer(HostBuffer&&) noexcept = default;
  HostBuffer& operator=(HostBuffer&&) noexcept = default;

  std::size_t count() const;
  Dtype dtype() const;
  /// The elements, for the program to read and write; null without elements. Blocks until all work of the device is
  /// done, because a copy may be in flight. The program must not access the elements after it enqueues another copy of
  /// them, or launches a graph with one, until it calls data() again. Throws kDevice if work of the device failed.
  void* data() const;
  /// `data<T>()`: the elements as T*.
  using core::Typed<HostBuffer>::data;

 private:
  friend void copy_from_host(const HostBuffer& from, Operand to, Queue queue);
  friend void copy_to_host(ConstOperand from, const HostBuffer& to, Queue queue);

  std::shared_ptr<core::HostMemory> core_;
};

/// Enqueues a copy of all elements of `from` into `to`, on one device, and returns without waiting for the copy. Both
/// are memory of this rank; of symmetric and adopted memory, this rank's part is used. Throws kInvalidArgument for
/// types or lengths that differ, for memory of another device than the queue's, and for operands that overlap without
/// being the same; kUnsupported on a stream that Stream::capture records; kDevice if the runtime refuses.
void copy(ConstOperand from, Operand to, Queue queue);

/// Enqueues a copy of all elements of `from` into `to`, and returns without waiting for the copy. In a graph, each
/// launch copies the contents of `from` at that time. Throws the errors of copy.
void copy_from_host(const HostBuffer& from, Operand to, Queue queue);

/// Enqueues a copy of all elements of `from` into `to`, and returns without waiting for the copy. HostBuffer::data
/// waits for the copy. Throws the errors of copy.
void copy_to_host(ConstOperand from, const HostBuffer& to, Queue queue);

}  // namespace symmetra
