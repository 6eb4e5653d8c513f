/// \file
/// Named tensors and other values, as one rank of a group gives them to all.
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

/// A row-major tensor of any type in the memory of a device. Move-only; usable from any thread.
class Tensor {
 public:
  /// One in memory of its own. Throws kInvalidArgument for a shape of another number of elements than the
  /// buffer has.
  Tensor(DeviceBuffer buffer, std::vector<std::size_t> shape);
  /// One in memory that is borrowed, and outlives it. Throws likewise.
  static Tensor borrowed(Operand memory, std::vector<std::size_t> shape);

  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  Dtype dtype() const;
  /// Its dimensions, in elements.
  const std::vector<std::size_t>& shape() const;
  /// Its memory where that is its own, as of all that broadcast_named gives. Throws kUnsupported where it is
  /// borrowed.
  const DeviceBuffer& buffer() const;
  /// Its elements, for a collective. Does not outlive it.
  operator Operand() const;

 private:
  struct Held;
  explicit Tensor(std::shared_ptr<const Held> held);

  std::shared_ptr<const Held> held_;
};

/// What a name stands for: a tensor, or anything else as JSON text: `7`, `"relu"`, `{"layers": 2}`. It arrives as the
/// same value, in other words perhaps: keys sorted, and numbers beyond 64 bits as the nearest double.
using Value = std::variant<Tensor, std::string>;
/// Names are UTF-8.
using NamedValues = std::map<std::string, Value>;

}  // namespace symmetra
