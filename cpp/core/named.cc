#include "symmetra/named.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "cpp/core/call.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;
using core::text_of;

struct NamedTensor::Held {
  /// Empty if the memory is borrowed.
  std::optional<DeviceBuffer> buffer;
  ConstOperand input;
  /// Empty if the memory is read-only.
  std::optional<Operand> output;
  std::vector<std::size_t> shape;
};

NamedTensor::NamedTensor(std::shared_ptr<const Held> held) : held_(std::move(held)) {
  const std::size_t count = core::operand_of(held_->input).count;
  std::size_t elements = 1;
  bool fits = true;
  for (const std::size_t dim : held_->shape) fits = !__builtin_mul_overflow(elements, dim, &elements) && fits;
  if (fits && elements == count) return;
  throw Error(ErrorKind::kInvalidArgument, "the shape has " + (fits ? std::to_string(elements) : "more than 64 bits of") +
                                               " elements, but the memory has " + std::to_string(count));
}

NamedTensor::NamedTensor(DeviceBuffer buffer, std::vector<std::size_t> shape)
    : NamedTensor([&] {
        const Operand operand = buffer;
        return std::make_shared<const Held>(Held{std::move(buffer), operand, operand, std::move(shape)});
      }()) {}

NamedTensor NamedTensor::borrowed(Operand memory, std::vector<std::size_t> shape) {
  return NamedTensor(std::make_shared<const Held>(Held{std::nullopt, memory, memory, std::move(shape)}));
}

NamedTensor NamedTensor::borrowed_const(ConstOperand memory, std::vector<std::size_t> shape) {
  return NamedTensor(std::make_shared<const Held>(Held{std::nullopt, memory, std::nullopt, std::move(shape)}));
}

Dtype NamedTensor::dtype() const { return core::operand_dtype(live(held_).input); }

const std::vector<std::size_t>& NamedTensor::shape() const { return live(held_).shape; }

const DeviceBuffer& NamedTensor::buffer() const {
  if (live(held_).buffer) return *held_->buffer;
  throw Error(ErrorKind::kUnsupported, "the buffer of a tensor in borrowed memory: its owner has it");
}

NamedTensor::operator ConstOperand() const { return live(held_).input; }

NamedTensor::operator Operand() const {
  if (live(held_).output) return *held_->output;
  throw Error(ErrorKind::kInvalidArgument, "the output is a tensor of borrowed_const, whose memory is only read");
}

namespace {

rust::Vec<std::uint8_t> owned_bytes(const std::string& text) {
  rust::Vec<std::uint8_t> bytes;
  bytes.reserve(text.size());
  std::copy(text.begin(), text.end(), std::back_inserter(bytes));
  return bytes;
}

core::Named entry_of(const std::string& name, const NamedValue& value) {
  core::Named named{};
  named.name = owned_bytes(name);
  if (const NamedTensor* tensor = std::get_if<NamedTensor>(&value)) {
    named.is_tensor = true;
    try {
      named.operand = core::operand_of(*tensor);
      for (const std::size_t dim : tensor->shape()) named.shape.push_back(dim);
    } catch (const Error& error) {
      // The value was moved from. This rank takes part nevertheless, so that the others do not wait for it.
      named.refusal = rust::String::lossy(error.what());
    }
  } else {
    named.other = owned_bytes(std::get<std::string>(value));
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
      share(call([&] { return core::coordinator_broadcast_named(live(coordinator_), map != nullptr, slice, root, live(stream.core_)); }));
  if (map != nullptr) return std::nullopt;
  NamedValues values;
  std::size_t index = 0;
  for (const core::Named& named : core::received_entries(*received)) {
    const std::string name = text_of(named.name);
    if (named.is_tensor) {
      DeviceBuffer buffer(share(call([&] { return core::received_tensor(*received, index); })));
      values.emplace(name, NamedTensor(std::move(buffer), {named.shape.begin(), named.shape.end()}));
    } else {
      values.emplace(name, text_of(named.other));
    }
    ++index;
  }
  return values;
}

}  // namespace symmetra
