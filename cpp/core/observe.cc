// Running groups, times of calls, and records.
#include "symmetra/observe.hpp"

#include "cpp/core/call.hpp"
#include "symmetra/communicator.hpp"
#include "symmetra/src/capi/mod.rs.h"
#include "symmetra/src/capi/observe.rs.h"

namespace symmetra {

using core::call;
using core::live;

namespace {

CallTimes times_of(const core::Times& of) {
  CallTimes times{std::string(of.operation), {}, of.up_to_bytes, of.calls, of.median_us, of.p99_us, of.total_us, {}, {}, of.attributed};
  if (!of.algorithm.empty()) times.algorithm = std::string(of.algorithm);
  if (of.busbw_gbps >= 0) times.busbw_gbps = of.busbw_gbps;
  for (const core::Wait& wait : of.waits) times.waits.push_back({wait.rank, wait.share, wait.mean_us});
  return times;
}

}  // namespace

std::string Communicator::dump(const std::string& folder) const {
  return std::string(call([&] { return core::communicator_dump(live(communicator_), folder); }));
}

Timings Communicator::timings() const {
  const core::AllTimes all = call([&] { return core::communicator_timings(live(communicator_)); });
  Timings timings{{}, all.unlabelled};
  for (const core::Times& times : all.calls) timings.calls.push_back(times_of(times));
  return timings;
}

namespace observe {

std::string look(std::optional<std::uint32_t> process) {
  return std::string(call([&] { return core::observe_look(process.value_or(0)); }));
}

std::vector<std::string> dump_all(const std::string& folder) {
  std::vector<std::string> paths;
  for (const rust::String& path : call([&] { return core::observe_dump_all(folder); })) paths.emplace_back(path);
  return paths;
}

void dump_on(int signal, const std::string& folder) {
  call([&] { core::observe_dump_on(signal, folder); });
}

}  // namespace observe

}  // namespace symmetra
