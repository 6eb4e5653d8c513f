// Optional values of the public headers, converted for Rust.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "symmetra/memory.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra::core {

/// An optional number or enum.
template <class T>
MaybeSize size_of(const std::optional<T>& value) {
  return {value.has_value(), value ? static_cast<std::size_t>(*value) : 0};
}

inline MaybeText text_of(const std::optional<std::string>& text) { return {text.has_value(), rust::String::lossy(text.value_or(""))}; }

template <class T>
MaybeOperand maybe(const std::optional<T>& operand) {
  return operand ? MaybeOperand{true, operand_of(*operand)} : MaybeOperand{};
}

}  // namespace symmetra::core
