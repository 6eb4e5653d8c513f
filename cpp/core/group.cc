// Groups outside an environment, and the groups into which they split.
#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "cpp/core/ready_made.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

namespace {

core::GroupSettings settings_of(const GroupConfig& config) {
  core::GroupSettings settings{};
  settings.communicator = core::settings_of(config.communicator);
  settings.host = core::text_of(config.host);
  settings.interface = core::text_of(config.interface);
  settings.backend = core::size_of(config.backend);
  return settings;
}

}  // namespace

Coordinator Coordinator::open(std::unique_ptr<Bootstrap> bootstrap, const Device& device, const GroupConfig& config) {
  const core::GroupSettings settings = settings_of(config);
  return Coordinator(
      share(call([&] { return core::coordinator_open(core::ReadyMade::taken(std::move(bootstrap)), live(device.core_), settings); })));
}

std::optional<Coordinator> Coordinator::split(std::optional<std::uint32_t> color, std::int32_t key) const {
  const core::Color asked{color.has_value(), color.value_or(0)};
  auto part = share(call([&] { return core::coordinator_split(live(coordinator_), asked, key); }));
  if (!core::coordinator_part_is_member(*part)) return std::nullopt;
  return Coordinator(share(call([&] { return core::coordinator_part_take(*part); })));
}

void Coordinator::close() const {
  call([&] { core::coordinator_close(live(coordinator_)); });
}

void Coordinator::depart() const {
  call([&] { core::coordinator_depart(live(coordinator_)); });
}

}  // namespace symmetra
