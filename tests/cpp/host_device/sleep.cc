#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpp/device/host/bell.hpp"
#include "symmetra/device/platform/host_atomics.hpp"
#include "symmetra/device/wait.cuh"
#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

/// The shared memory of a test.
struct Arena {
  kernels::Progress progress;
  uint32_t word;    // what the first kernel waits for
  uint32_t answer;  // what the second kernel waits for
};

/// A kernel that waits for `rounds` values of a word, and stores each to the other word.
struct Args {
  kernels::Wait wait;
  uint32_t* from;
  uint32_t* to;
  uint32_t rounds;
  bool begins;
  Word* passed;
};

void exchange(const void* bytes) {
  const Args& args = *static_cast<const Args*>(bytes);
  device::Waiter waiter(args.wait, kernels::kOpSignalWait, 0, false);
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    if (args.begins) platform::store_release(args.to, round);
    if (!waiter.until(1, [&] { return platform::load_acquire(args.from) >= round; })) return;
    if (!args.begins) platform::store_release(args.to, round);
  }
  args.passed->fetch_add(1, std::memory_order_acq_rel);
}

int32_t launch(const device::Stream& stream, const Args& args) {
  device::HostKernel kernel{};
  kernel.entry = exchange;
  kernel.args = &args;
  kernel.bytes = sizeof(args);
  return stream.launch_host(kernel, kOneThread);
}

/// A rank's shared memory, and a stream on which a kernel waits for the word.
struct Rank {
  std::shared_ptr<device::Device> host = open_host();
  std::unique_ptr<device::Memory> memory = host->allocate_shared(host->shared_granularity());
  std::unique_ptr<device::Stream> stream = host->create_stream();
  kernels::Status status{};
  Word passed{0};

  Arena& arena() const { return *reinterpret_cast<Arena*>(memory->address()); }
  Args waits(steady_clock::duration most) {
    const auto most_ns = static_cast<uint64_t>(std::chrono::nanoseconds(most).count());
    return {{&arena().progress, &status, most_ns}, &arena().word, &arena().answer, 1, false, &passed};
  }
};

double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

void test_a_long_wait_leaves_the_processor_to_others() {
  Rank rank;
  CHECK(launch(*rank.stream, rank.waits(seconds(60))) == 0);
  const double before = processor_seconds();
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(processor_seconds() - before < 0.1);
  CHECK(rank.passed.load() == 0);
  const auto other = rank.host->create_stream();
  CHECK(other->store(&rank.arena().word, 1) == 0);
  rank.stream->synchronize();
  CHECK(rank.passed.load() == 1 && rank.arena().answer == 1);
}

void test_a_deadline_and_an_abort_end_a_sleep() {
  Rank late;
  const auto start = steady_clock::now();
  CHECK(launch(*late.stream, late.waits(milliseconds(50))) == 0);
  late.stream->synchronize();
  CHECK(late.status.code == kernels::kStatusTimeout);
  CHECK(steady_clock::now() - start >= milliseconds(50) && steady_clock::now() - start < seconds(10));

  Rank aborted;
  CHECK(launch(*aborted.stream, aborted.waits(seconds(600))) == 0);
  std::this_thread::sleep_for(milliseconds(20));
  std::atomic_ref<uint32_t>(aborted.status.abort).store(1);
  aborted.stream->synchronize();
  CHECK(aborted.status.code == kernels::kStatusAborted && aborted.passed.load() == 0);
}

/// Two kernels that wait for each other in turn, each with the other's stores as the only news.
void test_kernels_wake_each_other() {
  Rank first, second;
  constexpr uint32_t kRounds = 2000;
  Args one = first.waits(seconds(60)), two = second.waits(seconds(60));
  one.rounds = two.rounds = kRounds;
  one.begins = true;
  one.to = two.from;
  two.to = one.from;
  CHECK(launch(*first.stream, one) == 0 && launch(*second.stream, two) == 0);
  first.stream->synchronize();
  second.stream->synchronize();
  CHECK(first.passed.load() == 1 && second.passed.load() == 1);
}

bool is_one(void* word) { return std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(word)).load() == 1; }

/// The sleep's limit is far away, so nothing but a ring ends the sleep.
void test_a_ring_wakes_a_sleeper(bool of_another_process) {
  Rank rank;
  uint32_t* const word = &rank.arena().word;
  const auto store = [&] {
    std::this_thread::sleep_for(milliseconds(50));
    std::atomic_ref<uint32_t>(*word).store(1);
    device::host::ring();
  };
  const auto start = steady_clock::now();
  const pid_t child = of_another_process ? ::fork() : -1;
  if (child == 0) {
    store();
    ::_exit(0);
  }
  std::thread thread;
  if (!of_another_process) thread = std::thread(store);
  while (!is_one(word)) device::host::sleep_until_rung(&rank.arena().progress, 600'000'000'000, is_one, word);
  CHECK(steady_clock::now() - start < seconds(60));
  if (thread.joinable()) thread.join();
  if (of_another_process) CHECK(::waitpid(child, nullptr, 0) == child);
}

void test_what_has_come_is_not_slept_for() {
  Rank rank;
  uint32_t* const word = &rank.arena().word;
  *word = 1;
  const auto start = steady_clock::now();
  device::host::sleep_until_rung(&rank.arena().progress, 600'000'000'000, is_one, word);
  CHECK(steady_clock::now() - start < seconds(60));
}

}  // namespace

void test_sleep() {
  test_a_long_wait_leaves_the_processor_to_others();
  test_a_deadline_and_an_abort_end_a_sleep();
  test_kernels_wake_each_other();
  test_a_ring_wakes_a_sleeper(false);
  test_a_ring_wakes_a_sleeper(true);
  test_what_has_come_is_not_slept_for();
}

}  // namespace symmetra::tests
