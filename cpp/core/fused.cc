// GEMMs fused with collectives.
#include "symmetra/fused.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "cpp/core/product.hpp"
#include "symmetra/collectives.hpp"
#include "symmetra/src/capi/fused.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::factor_of;
using core::live;
using core::maybe;
using core::operand_of;
using core::product_of;
using core::queue_of;
using core::share;

namespace {

/// Valid as long as `options`.
core::AskedFused fused_of(const FusedOptions& options) {
  core::AskedFused asked{};
  asked.way = static_cast<std::uint32_t>(options.way);
  asked.reduction = static_cast<std::uint32_t>(options.reduction);
  asked.has_rows = options.rows.has_value();
  if (options.rows) asked.rows = {options.rows->data(), options.rows->size()};
  return asked;
}

rust::Slice<const std::size_t> shape_of(const std::vector<std::size_t>& shape) { return {shape.data(), shape.size()}; }

std::optional<double> time_of(const core::MaybeTime& time) { return time.set ? std::optional<double>(time.us) : std::nullopt; }

Planned planned_of(const core::ExplainedPlan& plan) {
  return {static_cast<Way>(plan.way), plan.parts,          std::string(plan.library),
          time_of(plan.predicted),    time_of(plan.bound), std::string(plan.reason)};
}

std::vector<core::AskedProduct> products_of(const std::vector<Product>& products) {
  std::vector<core::AskedProduct> asked;
  for (const Product& product : products) asked.push_back(product_of(product));
  return asked;
}

rust::Slice<const core::AskedProduct> all_of(const std::vector<core::AskedProduct>& products) { return {products.data(), products.size()}; }

void enqueue_sum(const core::SummingPlan& plan, const Factor& left, const Factor& right, const Operand& result, const Queue& queue) {
  const core::AskedFactor factor = factor_of(left);
  const core::AskedOperands operands{factor_of(right), operand_of(result)};
  call([&] { core::summing_enqueue(plan, factor, operands, queue_of(queue)); });
}

}  // namespace

std::string name(Way way) {
  return std::string(call([&] { return core::way_name(static_cast<std::uint32_t>(way)); }));
}

AllGatherMatmul Collectives::plan_all_gather_matmul(const std::vector<std::size_t>& shard, std::size_t dim,
                                                    const std::vector<Product>& products, const FusedOptions& options) const {
  const std::vector<core::AskedProduct> asked = products_of(products);
  return AllGatherMatmul(
      share(call([&] { return core::plan_all_gather_matmul(live(group_), shape_of(shard), dim, all_of(asked), fused_of(options)); })));
}

MatmulReduceScatter Collectives::plan_matmul_reduce_scatter(const std::vector<std::size_t>& left, std::size_t dim, const Product& product,
                                                            const FusedOptions& options) const {
  return MatmulReduceScatter(share(
      call([&] { return core::plan_matmul_reduce_scatter(live(group_), shape_of(left), dim, product_of(product), fused_of(options)); })));
}

MatmulAllReduce Collectives::plan_matmul_all_reduce(const std::vector<std::size_t>& left, const Product& product,
                                                    const FusedOptions& options) const {
  return MatmulAllReduce(
      share(call([&] { return core::plan_matmul_all_reduce(live(group_), shape_of(left), product_of(product), fused_of(options)); })));
}

void AllGatherMatmul::enqueue(const Factor& shard, const std::optional<Operand>& gathered,
                              const std::vector<std::pair<Factor, Operand>>& products, Queue queue) const {
  const core::AskedFactor part = factor_of(shard);
  const core::MaybeOperand whole = maybe(gathered);
  std::vector<core::AskedOperands> asked;
  for (const auto& [right, result] : products) asked.push_back({factor_of(right), operand_of(result)});
  const rust::Slice<const core::AskedOperands> all(asked.data(), asked.size());
  call([&] { core::gathering_enqueue(live(core_), part, whole, all, queue_of(queue)); });
}

Planned AllGatherMatmul::explain() const { return planned_of(core::gathering_explain(live(core_))); }

std::uint64_t AllGatherMatmul::heap_bytes(std::size_t world_size, const std::vector<std::size_t>& shard, std::size_t dim,
                                          const std::vector<Product>& products, const FusedOptions& options) {
  const std::vector<core::AskedProduct> asked = products_of(products);
  return call([&] { return core::gathering_heap_bytes(world_size, shape_of(shard), dim, all_of(asked), fused_of(options)); });
}

void MatmulReduceScatter::enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const {
  enqueue_sum(live(core_), left, right, result, queue);
}

Planned MatmulReduceScatter::explain() const { return planned_of(core::summing_explain(live(core_))); }

std::uint64_t MatmulReduceScatter::heap_bytes(std::size_t world_size, const std::vector<std::size_t>& left, std::size_t dim,
                                              const Product& product, const FusedOptions& options) {
  return call([&] { return core::scattering_heap_bytes(world_size, shape_of(left), dim, product_of(product), fused_of(options)); });
}

void MatmulAllReduce::enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const {
  enqueue_sum(live(core_), left, right, result, queue);
}

Planned MatmulAllReduce::explain() const { return planned_of(core::summing_explain(live(core_))); }

std::uint64_t MatmulAllReduce::heap_bytes(std::size_t world_size, const std::vector<std::size_t>& left, const Product& product,
                                          const FusedOptions& options) {
  return call([&] { return core::reducing_heap_bytes(world_size, shape_of(left), product_of(product), fused_of(options)); });
}

}  // namespace symmetra
