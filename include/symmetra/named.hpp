/// \file
/// Named tensors and other values, which one rank of a group sends to all.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

/// A row-major tensor of any type in device memory. Move-only; usable from any thread.
class NamedTensor {
 public:
  /// A tensor that owns its memory. Throws kInvalidArgument unless `shape` has as many elements as `buffer`.
  NamedTensor(DeviceBuffer buffer, std::vector<std::size_t> shape);
  /// A tensor in borrowed memory, which must outlive it. Throws kInvalidArgument unless `shape` has as many elements as
  /// `memory`.
  static NamedTensor borrowed(Operand memory, std::vector<std::size_t> shape);
  /// A tensor in borrowed memory that is only read: no collective may write to it.
  static NamedTensor borrowed_const(ConstOperand memory, std::vector<std::size_t> shape);

  NamedTensor(NamedTensor&&) noexcept = default;
  NamedTensor& operator=(NamedTensor&&) noexcept = default;

  Dtype dtype() const;
  /// The dimensions, in elements.
  const std::vector<std::size_t>& shape() const;
  /// The tensor's memory when it owns it, as every tensor from broadcast_named does. Throws kUnsupported for borrowed
  /// memory.
  const DeviceBuffer& buffer() const;
  /// The tensor's elements as an operand, which must not outlive the tensor.
  operator ConstOperand() const;
  /// The tensor's elements as an operand, which must not outlive the tensor. Throws kInvalidArgument for a tensor of
  /// borrowed_const.
  operator Operand() const;

 private:
  struct Held;
  explicit NamedTensor(std::shared_ptr<const Held> held);

  std::shared_ptr<const Held> held_;
};

/// The value of a name: a tensor, or JSON text such as `7`, `"relu"`, `{"layers": 2}`. Receivers get an equal JSON
/// value, but keys may be sorted and numbers beyond 64 bits become the nearest double.
using NamedValue = std::variant<NamedTensor, std::string>;
/// Names are UTF-8.
using NamedValues = std::map<std::string, NamedValue>;

}  // namespace symmetra
