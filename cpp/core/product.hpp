// GEMMs and their factors, converted for Rust.
#pragma once

#include <cstdint>

#include "cpp/core/optional.hpp"
#include "symmetra/matmul.hpp"
#include "symmetra/src/capi/matmul.rs.h"

namespace symmetra::core {

inline AskedNumeric numeric_of(const symmetra::Numeric& numeric) {
  return {static_cast<std::uint32_t>(numeric.kind), static_cast<std::uint32_t>(numeric.left), static_cast<std::uint32_t>(numeric.right)};
}

inline AskedProduct product_of(const symmetra::Product& product) {
  AskedProduct asked{};
  asked.inner = product.inner;
  asked.columns = product.columns;
  asked.count = product.count;
  asked.numeric = numeric_of(product.numeric);
  asked.scaling = static_cast<std::uint32_t>(product.scaling);
  asked.left = static_cast<std::uint32_t>(product.left);
  asked.right = static_cast<std::uint32_t>(product.right);
  asked.result = static_cast<std::uint32_t>(product.result);
  asked.bias = product.bias;
  asked.relu = product.relu;
  asked.fast_accumulation = product.fast_accumulation;
  return asked;
}

inline AskedFactor factor_of(const symmetra::Factor& factor) {
  return {operand_of(factor.operand), maybe(factor.scales), maybe(factor.bias)};
}

}  // namespace symmetra::core
