#include <xmmintrin.h>

#include <atomic>
#include <cerrno>
#include <limits>

#include "symmetra/device/platform/host.hpp"
#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

/// The thread that runs a kernel which the caller enqueues on `stream` and waits for.
std::thread::id runs_on(const device::Stream& stream, const kernels::Geometry& geometry = kOneThread) {
  threads_seen.clear();
  CHECK(stream.launch(kernels::AgreeArgs{}, geometry) == 0);
  stream.synchronize();
  CHECK(threads_seen.size() == size_t{geometry.blocks} * geometry.threads);
  const auto here = std::this_thread::get_id();
  for (const std::thread::id thread : threads_seen) {
    if (thread == here) return here;
  }
  return threads_seen.front();
}

void test_a_guest_runs_its_commands() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto here = std::this_thread::get_id();
  CHECK(runs_on(*stream) != here);
  CHECK(stream->take_over());
  CHECK(!stream->take_over());
  CHECK(runs_on(*stream) == here);
  CHECK(runs_on(*stream, {2, 3, 0, 0}) == here);
  const auto event = host->create_event();
  uint8_t from[64] = {1, 2, 3};
  uint8_t to[64] = {};
  CHECK(stream->copy(to, from, sizeof(to)) == 0);
  CHECK(stream->record(*event) == 0);
  CHECK(to[2] == 0);
  event->synchronize();
  CHECK(event->done() && to[2] == 3);
  stream->hand_back();
  CHECK(runs_on(*stream) != here);
  // Commands that the guest never waits for go to the worker.
  CHECK(stream->take_over());
  threads_seen.clear();
  CHECK(stream->launch(kernels::AgreeArgs{}, kOneThread) == 0);
  stream->hand_back();
  stream->synchronize();
  CHECK(threads_seen.size() == 1 && threads_seen[0] != here);
}

void test_a_stream_with_work_is_not_taken_over() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Gate gate;
  CHECK(gate.launch(*stream) == 0);
  CHECK(!stream->take_over());
  stream->hand_back();
  gate.open();
  CHECK(runs_on(*stream) != std::this_thread::get_id());
  const auto capture = stream->begin_capture();
  CHECK(!stream->take_over());
}

/// Any use by another thread: it may have to end before the guest waits.
void test_another_thread_ends_a_guest() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto other = host->create_stream();
  const auto event = host->create_event();
  const auto here = std::this_thread::get_id();
  const auto elsewhere = [](auto&& body) { std::thread(body).join(); };
  for (int way = 0; way < 6; ++way) {
    CHECK(stream->take_over());
    threads_seen.clear();
    CHECK(stream->launch(kernels::AgreeArgs{}, kOneThread) == 0);
    CHECK(stream->record(*event) == 0);
    elsewhere([&] {
      uint32_t word = 0;
      switch (way) {
        case 0:
          stream->synchronize();
          break;
        case 1:
          while (!stream->done()) std::this_thread::yield();
          break;
        case 2:
          while (!event->done()) std::this_thread::yield();
          break;
        case 3:
          CHECK(other->wait(*event) == 0);
          other->synchronize();
          break;
        case 4:
          CHECK(stream->store(&word, 1) == 0);
          while (std::atomic_ref(word).load(std::memory_order_acquire) == 0) std::this_thread::yield();
          break;
        default:
          host->synchronize();
      }
    });
    CHECK(threads_seen.size() == 1 && threads_seen[0] != here);
    CHECK(runs_on(*stream) != here);
    stream->hand_back();
  }
  // The guest itself may ask without a wait.
  CHECK(stream->take_over());
  CHECK(stream->record(*event) == 0);
  while (!event->done() || !stream->done()) std::this_thread::yield();
  stream->hand_back();
}

void test_commands_that_come_while_a_guest_runs() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Gate gate;
  log_of_signals.clear();
  CHECK(stream->take_over());
  CHECK(gate.launch(*stream) == 0);
  CHECK(append(*stream, 1) == 0);
  std::thread second([&] {
    std::this_thread::sleep_for(milliseconds(20));
    for (uint32_t i = 2; i < 50; ++i) CHECK(append(*stream, i) == 0);
    CHECK(!stream->done());
    gate.open();
    stream->synchronize();
  });
  stream->synchronize();
  second.join();
  stream->hand_back();
  stream->synchronize();
  bool ordered = log_of_signals.size() == 49;
  for (size_t i = 0; ordered && i < log_of_signals.size(); ++i) ordered = log_of_signals[i] == i + 1;
  CHECK(ordered);
}

/// A product of two numbers.
struct Product {
  float factors[2];
  float* result;
};

void multiply(const void* args) {
  const auto* own = static_cast<const Product*>(args);
  *own->result = own->factors[0] * own->factors[1];
}

float product_of(const device::Stream& stream, float left, float right) {
  float result = -1;
  const Product product{{left, right}, &result};
  CHECK(stream.launch_host({multiply, &product, sizeof(product)}, kOneThread) == 0);
  stream.synchronize();
  return result;
}

/// All ranks have equal bits, so the caller's rounding and its small numbers do not matter.
void test_a_guest_computes_as_the_worker() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const float small = std::numeric_limits<float>::min();
  const unsigned own = _mm_getcsr();
  const unsigned flushing = own | 0x8040;  // flush to zero, denormals are zero
  _mm_setcsr(flushing);
  CHECK(stream->take_over());
  const float product = product_of(*stream, small, 0.5f);
  stream->hand_back();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(own);
  CHECK(product > 0 && product < small);
  CHECK((after & 0x8040) == 0x8040);
}

void test_a_stream_may_end_before_its_guest() {
  const auto host = open_host();
  auto owner = host->create_stream();
  const auto borrowed = host->borrow_stream(owner->raw());
  log_of_signals.clear();
  CHECK(borrowed->take_over());
  CHECK(append(*borrowed, 5) == 0);
  owner.reset();
  CHECK(log_of_signals.size() == 1 && log_of_signals[0] == 5);
  borrowed->synchronize();
  borrowed->hand_back();
  CHECK(!borrowed->take_over());
  CHECK(append(*borrowed, 6) == ECANCELED);
}

void test_a_guest_keeps_its_place() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  platform::host::current.block = 7;
  CHECK(stream->take_over());
  Word met{0};
  CHECK(launch(*stream, kMeeting, &met, 0, {2, 2, 64, 0}) == 0);
  stream->synchronize();
  stream->hand_back();
  const auto& place = platform::host::current;
  CHECK(met.load() == 4);
  CHECK(place.block == 7 && place.blocks == 1 && place.threads == 1 && place.barrier == nullptr && place.shared == nullptr);
  platform::host::current.block = 0;
}

void test_guests_of_several_threads() {
  constexpr uint32_t kThreads = 3;
  constexpr uint32_t kRounds = 400;
  const auto host = open_host();
  const auto stream = host->create_stream();
  log_of_signals.clear();
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        const bool guest = round % 3 != thread && stream->take_over();
        CHECK(append(*stream, thread * kRounds + round) == 0);
        if (round % 7 != 0) stream->synchronize();
        if (guest) stream->hand_back();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream->synchronize();
  // Of each thread all commands have run, in their order.
  CHECK(log_of_signals.size() == size_t{kThreads} * kRounds);
  uint32_t next[kThreads] = {};
  bool ordered = true;
  for (const uint32_t signal : log_of_signals) ordered = ordered && signal % kRounds == next[signal / kRounds]++;
  CHECK(ordered);
}

}  // namespace

void test_guests() {
  test_a_guest_runs_its_commands();
  test_a_stream_with_work_is_not_taken_over();
  test_another_thread_ends_a_guest();
  test_commands_that_come_while_a_guest_runs();
  test_a_guest_computes_as_the_worker();
  test_a_stream_may_end_before_its_guest();
  test_a_guest_keeps_its_place();
  test_guests_of_several_threads();
}

}  // namespace symmetra::tests
