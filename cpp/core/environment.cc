#include "symmetra/environment.hpp"

#include "cpp/core/call.hpp"
#include "cpp/core/settings.hpp"
#include "symmetra/src/ffi/export.rs.h"

namespace symmetra {

using core::call;
using core::live;
using core::share;

namespace {

core::MaybeSize size_of(std::optional<std::size_t> size) { return {size.has_value(), size.value_or(0)}; }

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

Environment::Environment(std::shared_ptr<core::Environment> core) : core_(std::move(core)) {
  for (const core::Members& members : core::environment_groups(*core_)) {
    Communicator communicator(share(core::environment_communicator(*core_, coordinators_.size())));
    coordinators_.push_back(Coordinator(std::move(communicator), {members.ranks.begin(), members.ranks.end()}));
  }
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
