#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

void test_enqueue_returns_while_a_kernel_runs() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Gate gate;
  uint8_t from[64];
  uint8_t to[64] = {};
  std::memset(from, 7, sizeof(from));
  CHECK(gate.launch(*stream) == 0);
  CHECK(stream->copy(to, from, sizeof(to)) == 0);
  CHECK(stream->fill(to, 9, 16) == 0);
  uint32_t word = 0;
  CHECK(stream->store(&word, 77) == 0);
  CHECK(!stream->done());
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(gate.passed() == 0);
  CHECK(std::atomic_ref(word).load() == 0);
  gate.open();
  // A thread that sees the word also sees the earlier work of the stream.
  while (std::atomic_ref(word).load(std::memory_order_acquire) != 77) std::this_thread::yield();
  CHECK(gate.passed() == 1);
  CHECK(to[0] == 9 && to[15] == 9 && to[16] == 7 && to[63] == 7);
  stream->synchronize();
  CHECK(stream->done());
}

void test_commands_run_in_order_also_when_the_ring_grows() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  log_of_signals.clear();
  for (uint32_t round = 0; round < 3; ++round) {
    Gate gate;
    CHECK(gate.launch(*stream) == 0);
    for (uint32_t i = 0; i < 1000; ++i) CHECK(append(*stream, i) == 0);
    gate.open();
    stream->synchronize();
  }
  bool ordered = log_of_signals.size() == 3000;
  for (size_t i = 0; ordered && i < log_of_signals.size(); ++i) ordered = log_of_signals[i] == i % 1000;
  CHECK(ordered);
}

void test_destructor_drains() {
  const auto host = open_host();
  Gate gate;
  std::thread opener;
  {
    const auto stream = host->create_stream();
    CHECK(gate.launch(*stream) == 0);
    CHECK(gate.launch(*stream) == 0);
    opener = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(10));
      gate.open();
    });
  }
  CHECK(gate.passed() == 2);
  opener.join();
}

void test_refusals_of_streams() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  uint8_t byte = 0;
  CHECK(stream->raw() != 0);
  CHECK(stream->copy(nullptr, &byte, 1) == EINVAL);
  CHECK(stream->copy(&byte, nullptr, 1) == EINVAL);
  CHECK(stream->fill(nullptr, 0, 1) == EINVAL);
  CHECK(stream->store(nullptr, 1) == EINVAL);
  CHECK(stream->copy(nullptr, nullptr, 0) == 0);
  CHECK(launch(*stream, kMissing, &byte, 0, kOneThread) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {0, 1, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {1, 0, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {kernels::kMaxBlocks + 1, 1, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {256, 0xFFFFFFFF, 0, 0}) == EINVAL);
  CHECK(std::strlen(host->describe(EINVAL)) > 0);
  CHECK(std::strcmp(host->describe(0), "success") == 0);
  CHECK(kind_of([&] { host->borrow_stream(stream->raw() + 1); }) == ErrorKind::kInvalidArgument);
  stream->synchronize();
}

}  // namespace

void test_streams() {
  test_enqueue_returns_while_a_kernel_runs();
  test_commands_run_in_order_also_when_the_ring_grows();
  test_destructor_drains();
  test_refusals_of_streams();
}

}  // namespace symmetra::tests
