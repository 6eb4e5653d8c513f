#include "symmetra/environment.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/optional.hpp"
#include "cpp/core/ready_made.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;
using core::size_of;
using core::text_of;

namespace {

core::EnvSettings settings_of(const EnvConfig& config, const core::Device* device) {
  core::EnvSettings settings{};
  settings.tensor_parallel_size = config.tensor_parallel_size;
  settings.pipeline_parallel_size = config.pipeline_parallel_size;
  settings.data_parallel_size = config.data_parallel_size;
  settings.data_parallel_rank = size_of(config.data_parallel_rank);
  settings.rank = size_of(config.rank);
  settings.world_size = size_of(config.world_size);
  settings.local_rank = size_of(config.local_rank);
  settings.init_method = rust::String::lossy(config.init_method);
  settings.device = device;
  settings.host = text_of(config.host);
  settings.interface = text_of(config.interface);
  settings.backend = size_of(config.backend);
  if (config.quantised) {
    settings.quantised.set = true;
    settings.quantised.codec = static_cast<std::uint32_t>(config.quantised->codec);
    settings.quantised.min_bytes = size_of(config.quantised->min_bytes);
    settings.quantised.max_bytes = size_of(config.quantised->max_bytes);
  }
  settings.communicator = core::settings_of(config.communicator);
  return settings;
}

}  // namespace

Environment Environment::init(const EnvConfig& config) {
  const core::Device* device = config.device == nullptr ? nullptr : &live(config.device->core_);
  const core::EnvSettings settings = settings_of(config, device);
  return Environment(share(call([&] { return core::environment_init(settings); })));
}

Environment Environment::init(Bootstrap& bootstrap, const EnvConfig& config) {
  const core::Device* device = config.device == nullptr ? nullptr : &live(config.device->core_);
  const core::EnvSettings settings = settings_of(config, device);
  return Environment(share(call([&] {
    core::Ready* ready = bootstrap.ready();
    if (ready != nullptr) return core::environment_init_ready(*ready, settings);
    return core::environment_init_on(bootstrap, settings);
  })));
}

Environment Environment::init(std::unique_ptr<Bootstrap> bootstrap, const EnvConfig& config) {
  const core::Device* device = config.device == nullptr ? nullptr : &live(config.device->core_);
  const core::EnvSettings settings = settings_of(config, device);
  return Environment(share(call([&] { return core::environment_init_taking(core::ReadyMade::taken(std::move(bootstrap)), settings); })));
}

Environment::Environment(std::shared_ptr<core::Environment> core) : core_(std::move(core)) {
  constexpr std::size_t kGroups = 1 + static_cast<std::size_t>(Parallelism::kExpert) + 1;
  for (std::size_t group = 0; group < kGroups; ++group) {
    coordinators_.push_back(Coordinator(share(call([&] { return core::environment_coordinator(*core_, group); }))));
  }
}

const Coordinator& Environment::world() const {
  live(core_);
  return coordinators_.front();
}

const Coordinator& Environment::group(Parallelism parallelism) const {
  live(core_);
  const std::size_t group = 1 + static_cast<std::size_t>(parallelism);
  if (group < coordinators_.size()) return coordinators_[group];
  throw Error(ErrorKind::kInvalidArgument,
              "the parallelism is " + std::to_string(group - 1) + ", but it must be less than " + std::to_string(coordinators_.size() - 1));
}

std::vector<Host> Environment::hosts() const {
  std::vector<Host> hosts;
  for (const core::Machine& machine : core::environment_hosts(live(core_))) {
    hosts.push_back({std::string(machine.name), {machine.ranks.begin(), machine.ranks.end()}});
  }
  return hosts;
}

std::vector<Setting> Environment::settings() const {
  std::vector<Setting> settings;
  for (const core::Entry& entry : core::environment_settings(live(core_))) {
    settings.push_back({std::string(entry.name), std::string(entry.value), std::string(entry.source)});
  }
  return settings;
}

void Environment::close() const {
  call([&] { core::environment_close(live(core_)); });
}

}  // namespace symmetra
