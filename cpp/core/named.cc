// Maps of named tensors and other values.
#include "symmetra/named.hpp"

#include <stdexcept>

#include "cpp/core/call.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

Tensor::Tensor(DeviceBuffer buffer, std::vector<std::size_t> shape)
    : buffer_(std::move(buffer)), operand_(*buffer_), dtype_(buffer_->dtype()), shape_(std::move(shape)) {
  check_shape(buffer_->count());
}

Tensor::Tensor(Operand memory, std::vector<std::size_t> shape)
    : operand_(memory), dtype_(core::operand_dtype(memory)), shape_(std::move(shape)) {
  check_shape(core::operand_of(memory).count);
}

Tensor Tensor::borrowed(Operand memory, std::vector<std::size_t> shape) { return Tensor(memory, std::move(shape)); }

void Tensor::check_shape(std::size_t count) const {
  std::size_t elements = 1;
  bool fits = true;
  for (const std::size_t dim : shape_) fits = !__builtin_mul_overflow(elements, dim, &elements) && fits;
  if (fits && elements == count) return;
  throw Error(ErrorKind::kInvalidArgument, "the shape has " + (fits ? std::to_string(elements) : "more than 64 bits of") +
                                               " elements, but the memory has " + std::to_string(count));
}

const DeviceBuffer& Tensor::buffer() const {
  if (buffer_) return *buffer_;
  throw Error(ErrorKind::kUnsupported, "the buffer of a tensor in borrowed memory: its owner has it");
}

namespace {

rust::String text_of(const char* what, const std::string& text) {
  try {
    return rust::String(text);
  } catch (const std::invalid_argument&) {
    throw Error(ErrorKind::kInvalidArgument, std::string(what) + " is not UTF-8");
  }
}

core::Named entry_of(const std::string& name, const Value& value) {
  core::Named named{};
  named.name = text_of("the name of a value", name);
  if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
    named.is_tensor = true;
    named.operand = core::operand_of(*tensor);
    for (const std::size_t dim : tensor->shape()) named.shape.push_back(dim);
  } else {
    named.other = text_of("a value", std::get<std::string>(value));
  }
  return named;
}

}  // namespace

std::optional<NamedValues> Coordinator::broadcast_named(const NamedValues* map, std::size_t root, const Stream& stream) const {
  std::vector<core::Named> entries;
  if (map != nullptr) {
    for (const auto& [name, value] : *map) entries.push_back(entry_of(name, value));
  }
  const rust::Slice<const core::Named> slice(entries.data(), entries.size());
  const auto received =
      share(call([&] { return core::coordinator_broadcast_named(live(core_), map != nullptr, slice, root, live(stream.core_)); }));
  if (map != nullptr) return std::nullopt;
  NamedValues values;
  std::size_t index = 0;
  for (const core::Named& named : core::received_entries(*received)) {
    const std::string name(named.name);
    if (named.is_tensor) {
      DeviceBuffer buffer(share(call([&] { return core::received_tensor(*received, index); })));
      values.emplace(name, Tensor(std::move(buffer), {named.shape.begin(), named.shape.end()}));
    } else {
      values.emplace(name, std::string(named.other));
    }
    ++index;
  }
  return values;
}

}  // namespace symmetra
