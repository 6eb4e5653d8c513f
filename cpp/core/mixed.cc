// Meshes of tensor and data parallelism.
#include "symmetra/mixed.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/src/capi/mixed.rs.h"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::operand_of;
using core::queue_of;
using core::share;

namespace {

core::MixedSettings settings_of(const MixedConfig& config) {
  const Grid& grid = config.grid;
  return {core::size_of(grid.local_tensor), core::size_of(grid.local_data), core::size_of(grid.across_tensor),
          core::size_of(grid.across_data), config.most_bytes};
}

std::uint32_t number(MixedOperation operation) { return static_cast<std::uint32_t>(operation); }
std::uint32_t number(MixedMode mode) { return static_cast<std::uint32_t>(mode); }

template <class T>
std::vector<T> vector_of(const rust::Vec<std::uint32_t>& numbers) {
  std::vector<T> items;
  for (const std::uint32_t number : numbers) items.push_back(static_cast<T>(number));
  return items;
}

}  // namespace

std::string name(MixedOperation operation) {
  return std::string(call([&] { return core::mixed_operation_name(number(operation)); }));
}

std::string name(MixedMode mode) {
  return std::string(call([&] { return core::mixed_mode_name(number(mode)); }));
}

std::uint64_t MixedConfig::required_bytes(std::size_t local, std::size_t hosts) const {
  return call([&] { return core::mixed_bytes(settings_of(*this), local, hosts); });
}

Mixed Mixed::open(const Coordinator& world, const MixedConfig& config) {
  return Mixed(share(call([&] { return core::mixed_open(live(world.coordinator_), settings_of(config)); })));
}

std::size_t Mixed::tensor_rank() const { return core::mixed_places(live(core_)).tensor_rank; }
std::size_t Mixed::tensor_size() const { return core::mixed_places(live(core_)).tensor_size; }
std::size_t Mixed::data_rank() const { return core::mixed_places(live(core_)).data_rank; }
std::size_t Mixed::data_size() const { return core::mixed_places(live(core_)).data_size; }

std::vector<MixedOperation> Mixed::operations() const { return vector_of<MixedOperation>(core::mixed_operations(live(core_))); }

std::vector<MixedMode> Mixed::modes(MixedOperation operation) const {
  return vector_of<MixedMode>(call([&] { return core::mixed_modes(live(core_), number(operation)); }));
}

MixedMode Mixed::select(MixedOperation operation, Dtype dtype, bool direct, std::uint64_t bytes) const {
  const auto of = static_cast<std::uint32_t>(dtype);
  return static_cast<MixedMode>(call([&] { return core::mixed_select(live(core_), number(operation), of, direct, bytes); }));
}

std::vector<std::string> Mixed::explain(MixedOperation operation, MixedMode mode) const {
  std::vector<std::string> steps;
  for (const rust::String& step : call([&] { return core::mixed_explain(live(core_), number(operation), number(mode)); })) {
    steps.emplace_back(step);
  }
  return steps;
}

void Mixed::perform(MixedOperation operation, ConstOperand input, Operand output, Queue queue, const MixedOptions& options) const {
  core::AskedMixed asked{};
  asked.operation = number(operation);
  asked.mode = number(options.mode);
  asked.reduction = static_cast<std::uint32_t>(options.reduction);
  asked.has_rows = options.rows.has_value();
  if (options.rows) asked.rows = {options.rows->data(), options.rows->size()};
  const core::Operand from = operand_of(input), into = operand_of(output);
  call([&] { core::mixed_run(live(core_), asked, from, into, queue_of(queue)); });
}

void Mixed::synchronize(const Stream& stream) const {
  call([&] { core::mixed_synchronize(live(core_), queue_of(stream)); });
}

void Mixed::close() const {
  call([&] { core::mixed_close(live(core_)); });
}

}  // namespace symmetra
