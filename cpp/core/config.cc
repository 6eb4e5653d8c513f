#include "symmetra/config.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra::core {

Settings settings_of(const Config& config) {
  Settings settings{};
  settings.open_ms = milliseconds(config.deadlines.open);
  settings.first_use_ms = milliseconds(config.deadlines.first_use);
  settings.steady_ms = milliseconds(config.deadlines.steady);
  settings.heap_bytes = config.heap_bytes;
  settings.heap_channels = config.heap_channels;
  settings.one_shot_ll_bytes = config.one_shot_ll_bytes;
  settings.one_shot_sentinel_set = config.one_shot_sentinel_bytes.has_value();
  settings.one_shot_sentinel_bytes = config.one_shot_sentinel_bytes.value_or(0);
  settings.two_shot_ll_bytes = config.two_shot_ll_bytes;
  settings.two_shot_sentinel_bytes = config.two_shot_sentinel_bytes;
  settings.ring_bytes = config.ring_bytes;
  settings.recursive_doubling_bytes = config.recursive_doubling_bytes;
  settings.pair_bytes = config.pair_bytes;
  settings.determinism = static_cast<std::uint32_t>(config.determinism);
  settings.transport = static_cast<std::uint32_t>(config.transport);
  settings.multicast = static_cast<std::uint32_t>(config.multicast);
  settings.registrations = config.registrations;
  settings.most_blocks_set = config.most_blocks.has_value();
  settings.most_blocks = config.most_blocks.value_or(0);
  settings.check_calls = config.check_calls;
  settings.guard_bytes = config.guard_bytes;
  settings.tuning = rust::String::lossy(config.tuning);
  return settings;
}

/// Sets all values of a Config except the tuning.
static void set(Config& config, const Settings& settings) {
  config.deadlines.open = std::chrono::milliseconds(settings.open_ms);
  config.deadlines.first_use = std::chrono::milliseconds(settings.first_use_ms);
  config.deadlines.steady = std::chrono::milliseconds(settings.steady_ms);
  config.heap_bytes = settings.heap_bytes;
  config.heap_channels = settings.heap_channels;
  config.one_shot_ll_bytes = settings.one_shot_ll_bytes;
  if (settings.one_shot_sentinel_set) config.one_shot_sentinel_bytes = settings.one_shot_sentinel_bytes;
  config.two_shot_ll_bytes = settings.two_shot_ll_bytes;
  config.two_shot_sentinel_bytes = settings.two_shot_sentinel_bytes;
  config.ring_bytes = settings.ring_bytes;
  config.recursive_doubling_bytes = settings.recursive_doubling_bytes;
  config.pair_bytes = settings.pair_bytes;
  config.determinism = static_cast<Determinism>(settings.determinism);
  config.transport = static_cast<Transport>(settings.transport);
  config.multicast = static_cast<Multicast>(settings.multicast);
  config.registrations = settings.registrations;
  if (settings.most_blocks_set) config.most_blocks = settings.most_blocks;
  config.check_calls = settings.check_calls;
  config.guard_bytes = settings.guard_bytes;
}

}  // namespace symmetra::core

namespace symmetra {

Config::Config() { core::set(*this, core::settings_default()); }

Config Config::small() {
  Config config;
  core::set(config, core::settings_small());
  return config;
}

std::uint64_t required_bytes(std::size_t world_size, const Config& config) {
  return core::call([&] { return core::required_bytes(world_size, core::settings_of(config)); });
}

}  // namespace symmetra
