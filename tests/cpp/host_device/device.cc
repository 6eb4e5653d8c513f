#include <sys/resource.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

void test_properties() {
  CHECK(device::count(device::kKindHost) == 1);
  const auto host = open_host(5);
  const auto properties = host->properties();
  CHECK(properties.kind == device::kKindHost && properties.ordinal == 5);
  CHECK(properties.multiprocessors >= 1 && properties.memory_bytes > 0);
  CHECK(properties.shared_fd == 1 && properties.legacy_ipc == 0 && properties.warp == 1);
  CHECK(!host->name().empty() && !host->versions().empty());
  CHECK(host->can_access(7));
  host->enable_peer(7);
  CHECK(kind_of([] { open_host(-1); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([] { device::open(77, 0); }) == ErrorKind::kUnsupported);
}

void test_objects_keep_what_they_need_of_the_device() {
  auto host = open_host();
  const auto stream = host->create_stream();
  const auto memory = host->allocate(64);
  host.reset();
  CHECK(stream->fill(memory->address(), 1, 64) == 0);
  stream->synchronize();
  CHECK(memory->address()[63] == 1);
}

void test_many_streams_from_many_threads() {
  const auto host = open_host();
  const auto shared_stream = host->create_stream();
  Word met{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        const auto memory = host->allocate(4096);
        const auto stream = host->create_stream();
        const auto event = host->create_event();
        CHECK(stream->fill(memory->address(), 1, 4096) == 0);
        CHECK(stream->record(*event) == 0);
        CHECK(shared_stream->wait(*event) == 0);
        CHECK(launch(*shared_stream, kMeeting, &met, 0, {1, 2, 0, 0}) == 0);
        CHECK(shared_stream->copy(memory->address(), memory->address() + 2048, 2048) == 0);
      }
    });
  }
  for (auto& caller : callers) caller.join();
  host->synchronize();
  CHECK(met.load() == 160);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void test_idle_streams_burn_no_cpu() {
  const auto host = open_host();
  const auto waiting = host->create_stream();
  const auto event = host->create_event();
  std::vector<std::unique_ptr<device::Stream>> streams;
  Word met{0};
  for (int i = 0; i < 16; ++i) {
    streams.push_back(host->create_stream());
    CHECK(launch(*streams.back(), kMeeting, &met, 0, {2, 2, 0, 0}) == 0);
    streams.back()->synchronize();
  }
  Gate gate;
  CHECK(gate.launch(*streams[0]) == 0);
  CHECK(streams[0]->record(*event) == 0);
  CHECK(waiting->wait(*event) == 0);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(200));
  CHECK(cpu_seconds() - before < 0.05);  // the gate itself wakes every millisecond
  gate.open();
  waiting->synchronize();
}

}  // namespace

void test_device() {
  test_properties();
  test_objects_keep_what_they_need_of_the_device();
  test_many_streams_from_many_threads();
  test_idle_streams_burn_no_cpu();
}

}  // namespace symmetra::tests
