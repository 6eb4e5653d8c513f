// Experts of a group.
#include "symmetra/experts.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/src/capi/experts.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::maybe;
using core::operand_of;
using core::queue_of;
using core::share;
using core::size_of;

core::AskedPlacement core::placement_of(const symmetra::Placement& placement) {
  using Kind = symmetra::Placement::Kind;
  AskedPlacement asked{};
  asked.round_robin = placement.kind_ == Kind::kRoundRobin;
  asked.is_table = placement.kind_ == Kind::kTable;
  for (const std::vector<std::size_t>& list : placement.lists_) {
    ExpertsOfRank of_rank{};
    for (const std::size_t expert : list) of_rank.experts.push_back(expert);
    asked.table.push_back(std::move(of_rank));
  }
  return asked;
}

namespace {

core::ExpertSettings settings_of(const ExpertConfig& config) {
  core::ExpertSettings settings{};
  settings.experts = config.experts;
  settings.top_k = config.top_k;
  settings.hidden = config.hidden;
  settings.max_tokens = config.max_tokens;
  settings.dtype = static_cast<std::uint32_t>(config.dtype);
  settings.wire = static_cast<std::uint32_t>(config.wire);
  settings.scales = static_cast<std::uint32_t>(config.scales);
  settings.row_bytes = config.row_bytes;
  settings.layout = static_cast<std::uint32_t>(config.layout);
  settings.align = config.align;
  settings.padded_rows = config.padded_rows;
  settings.method = static_cast<std::uint32_t>(config.method);
  settings.placement = core::placement_of(config.placement);
  settings.determinism = size_of(config.determinism);
  settings.capacity = size_of(config.capacity);
  settings.in_flight = config.in_flight;
  settings.blocks = size_of(config.blocks);
  return settings;
}

core::AskedRouting asked_routing(const Routing& routing) {
  return {operand_of(routing.ids), maybe(routing.weights), maybe(routing.tokens)};
}

core::SentRows sent_rows(const ConstOperand& rows, const std::optional<ConstOperand>& scales) { return {operand_of(rows), maybe(scales)}; }

core::AskedReceived asked_received(const Received& into) {
  core::AskedReceived asked{};
  asked.rows = operand_of(into.rows);
  asked.scales = maybe(into.scales);
  asked.counts = maybe(into.counts);
  asked.offsets = maybe(into.offsets);
  asked.ids = maybe(into.ids);
  asked.weights = maybe(into.weights);
  asked.sources = maybe(into.sources);
  asked.index = maybe(into.index);
  asked.columns = into.order == ScaleOrder::kColumns;
  return asked;
}

core::AskedSums asked_sums(const Operand& output, const CombineOptions& options) {
  return {operand_of(output), options.weighted, maybe(options.add)};
}

std::vector<std::size_t> vector_of(const rust::Vec<std::size_t>& numbers) { return {numbers.begin(), numbers.end()}; }

}  // namespace

ExpertConfig ExpertConfig::backend(const std::string& name, std::size_t world_size) const {
  core::ExpertSettings settings = settings_of(*this);
  call([&] { core::expert_backend(settings, name, world_size); });
  ExpertConfig config = *this;
  config.method = static_cast<Method>(settings.method);
  config.layout = static_cast<Layout>(settings.layout);
  config.align = settings.align;
  config.padded_rows = settings.padded_rows;
  return config;
}

std::uint64_t expert_bytes(std::size_t world_size, const Config& group, const ExpertConfig& config) {
  return call([&] { return core::expert_bytes(world_size, core::settings_of(group), settings_of(config)); });
}

Experts Collectives::experts(const ExpertConfig& config) const {
  return Experts(share(call([&] { return core::experts_open(live(group_), settings_of(config)); })));
}

Routed Experts::dispatch(const Routing& routing, ConstOperand rows, const Received& into, Queue queue,
                         std::optional<ConstOperand> scales) const {
  const core::AskedRouting asked = asked_routing(routing);
  const core::SentRows sent = sent_rows(rows, scales);
  const core::AskedReceived received = asked_received(into);
  return Routed(share(call([&] { return core::experts_dispatch(live(core_), asked, sent, received, queue_of(queue)); })));
}

Arriving Experts::dispatch_begin(const Routing& routing, ConstOperand rows, Queue queue, std::optional<ConstOperand> scales) const {
  const core::AskedRouting asked = asked_routing(routing);
  const core::SentRows sent = sent_rows(rows, scales);
  return Arriving(share(call([&] { return core::experts_dispatch_begin(live(core_), asked, sent, queue_of(queue)); })));
}

Routed Experts::plan(const Routing& routing, Queue queue) const {
  const core::AskedRouting asked = asked_routing(routing);
  return Routed(share(call([&] { return core::experts_plan(live(core_), asked, queue_of(queue)); })));
}

void Experts::place(const Placement& placement, const Stream& stream) const {
  call([&] { core::experts_place(live(core_), core::placement_of(placement), queue_of(stream)); });
}

Survivors Experts::without(const std::vector<std::size_t>& lost) const {
  const rust::Slice<const std::size_t> ranks(lost.data(), lost.size());
  core::Left left{};
  Experts experts(share(call([&] { return core::experts_without(live(core_), ranks, left); })));
  return {std::move(experts), vector_of(std::move(left.lost)), left.ended};
}

Communicator Experts::communicator() const {
  return Communicator(share(core::communicator_again(core::experts_communicator(live(core_)))));
}
void Experts::synchronize(const Stream& stream) const {
  call([&] { core::experts_synchronize(live(core_), queue_of(stream)); });
}
std::vector<std::size_t> Experts::local_experts() const { return vector_of(core::experts_local(live(core_))); }
std::size_t Experts::capacity() const { return core::experts_capacity(live(core_)); }
std::vector<MethodExplanation> Experts::explain() const {
  std::vector<MethodExplanation> explanations;
  for (const core::ExplainedMethod& explained : core::experts_explain(live(core_))) {
    explanations.push_back({static_cast<Method>(explained.method), explained.serves, std::string(explained.reason)});
  }
  return explanations;
}

Method Experts::method() const { return static_cast<Method>(core::experts_method(live(core_))); }

void Routed::dispatch(ConstOperand rows, const Received& into, Queue queue, std::optional<ConstOperand> scales) const {
  const core::SentRows sent = sent_rows(rows, scales);
  const core::AskedReceived received = asked_received(into);
  call([&] { core::routed_dispatch(live(core_), sent, received, queue_of(queue)); });
}

void Routed::combine(ConstOperand rows, Operand output, Queue queue, CombineOptions options) const {
  const core::Operand results = operand_of(rows);
  const core::AskedSums asked = asked_sums(output, options);
  call([&] { core::routed_combine(live(core_), results, asked, queue_of(queue)); });
}

Returning Routed::combine_begin(ConstOperand rows, Queue queue) const {
  const core::Operand results = operand_of(rows);
  return Returning(share(call([&] { return core::routed_combine_begin(live(core_), results, queue_of(queue)); })));
}

std::vector<std::size_t> Routed::counts() const {
  return vector_of(call([&] { return core::routed_counts(live(core_)); }));
}

Routed Arriving::receive(const Received& into, Queue queue) && {
  const std::shared_ptr<core::Arriving> core = std::move(core_);
  const core::AskedReceived asked = asked_received(into);
  return Routed(share(call([&] { return core::arriving_receive(live(core), asked, queue_of(queue)); })));
}

void Returning::receive(Operand output, Queue queue, CombineOptions options) && {
  const std::shared_ptr<core::Returning> core = std::move(core_);
  const core::AskedSums asked = asked_sums(output, options);
  call([&] { core::returning_receive(live(core), asked, queue_of(queue)); });
}

}  // namespace symmetra
