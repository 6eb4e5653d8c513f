// GEMMs.
#include "symmetra/matmul.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/product.hpp"
#include "symmetra/src/capi/matmul.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::factor_of;
using core::live;
using core::operand_of;
using core::product_of;
using core::queue_of;
using core::share;

Product::Product(std::size_t inner_elems, std::size_t column_count, Numeric types)
    : inner(inner_elems),
      columns(column_count),
      numeric(types),
      result(static_cast<Dtype>(call([&] { return core::product_result(core::numeric_of(types)); }))) {}

Multiplier::Multiplier(const Device& device) : core_(share(call([&] { return core::multiplier_new(live(device.core_)); }))) {}

std::string Multiplier::library() const { return std::string(core::multiplier_library(live(core_))); }

void Multiplier::enqueue(const Product& product, std::size_t rows, const Factor& left, const Factor& right, Operand result,
                         Queue queue) const {
  const core::AskedProduct asked = product_of(product);
  const core::AskedFactor first = factor_of(left), second = factor_of(right);
  const core::Operand into = operand_of(result);
  call([&] { core::multiplier_enqueue(live(core_), asked, rows, first, second, into, queue_of(queue)); });
}

}  // namespace symmetra
