#include "symmetra/config.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra::core {

namespace {

using Milliseconds = std::chrono::milliseconds;

/// One form of a setting from the other: for Rust, and back.
template <class T>
void convert(const T& from, T& to) {
  to = from;
}
void convert(const Milliseconds& from, std::uint64_t& to) { to = milliseconds(from); }
void convert(const std::uint64_t& from, Milliseconds& to) { to = Milliseconds(from); }
template <class Enum, std::enable_if_t<std::is_enum_v<Enum>, int> = 0>
void convert(const Enum& from, std::uint32_t& to) {
  to = static_cast<std::uint32_t>(from);
}
template <class Enum, std::enable_if_t<std::is_enum_v<Enum>, int> = 0>
void convert(const std::uint32_t& from, Enum& to) {
  to = static_cast<Enum>(from);
}
template <class T>
void convert(const std::optional<T>& from, MaybeSize& to) {
  to = size_of(from);
}
template <class T>
void convert(const MaybeSize& from, std::optional<T>& to) {
  to = from.set ? std::optional<T>(static_cast<T>(from.value)) : std::nullopt;
}
void convert(const std::string& from, rust::String& to) { to = rust::String::lossy(from); }
void convert(const rust::String& from, std::string& to) { to = std::string(from); }

/// Calls `each` with every setting of a Config and its mirror.
template <class Settings, class Mirror, class Each>
void every(Settings& config, Mirror& mirror, Each each) {
  each(config.deadlines.open, mirror.deadlines.open);
  each(config.deadlines.first_use, mirror.deadlines.first_use);
  each(config.deadlines.steady, mirror.deadlines.steady);
  each(config.heap_bytes, mirror.heap_bytes);
  each(config.heap_channels, mirror.heap_channels);
  each(config.one_shot_ll_bytes, mirror.one_shot_ll_bytes);
  each(config.one_shot_sentinel_bytes, mirror.one_shot_sentinel_bytes);
  each(config.two_shot_ll_bytes, mirror.two_shot_ll_bytes);
  each(config.two_shot_sentinel_bytes, mirror.two_shot_sentinel_bytes);
  each(config.ring_bytes, mirror.ring_bytes);
  each(config.recursive_doubling_bytes, mirror.recursive_doubling_bytes);
  each(config.pair_bytes, mirror.pair_bytes);
  each(config.determinism, mirror.determinism);
  each(config.transport, mirror.transport);
  each(config.multicast, mirror.multicast);
  each(config.registrations, mirror.registrations);
  each(config.most_blocks, mirror.most_blocks);
  each(config.check_calls, mirror.check_calls);
  each(config.guard_bytes, mirror.guard_bytes);
  each(config.silence, mirror.silence);
  each(config.hold_after_failure, mirror.hold_after_failure);
  each(config.graph_mixing, mirror.graph_mixing);
  each(config.timing, mirror.timing);
  each(config.tuning, mirror.tuning);
}

/// Sets every value of a Config.
void set(Config& config, const Settings& settings) {
  every(config, settings, [](auto& setting, const auto& mirror) { convert(mirror, setting); });
}

}  // namespace

Settings settings_of(const Config& config) {
  Settings settings{};
  every(config, settings, [](const auto& setting, auto& mirror) { convert(setting, mirror); });
  return settings;
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
