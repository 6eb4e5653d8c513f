// The host device by itself: streams, events, graphs, launches, memory. The kernels are
// stand-ins defined here, so that this file links without the real ones.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cpp/device/device.hpp"
#include "kernels/host/kernels.hpp"
#include "symmetra/device/platform/host.hpp"

namespace device = symmetra::device;
namespace kernels = symmetra::kernels;
using std::chrono::milliseconds;
using symmetra::ErrorKind;

namespace {

std::atomic<int> checks{0};
std::atomic<int> failures{0};

void check(bool good, const char* what, int line) {
  ++checks;
  if (good) return;
  ++failures;
  std::fprintf(stderr, "host_device_test.cc:%d: failed: %s\n", line, what);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

/// The kind of the error that `body` throws; nothing when it throws none.
template <typename Body>
std::optional<ErrorKind> kind_of(Body&& body) {
  try {
    body();
  } catch (const symmetra::Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

// ---- stand-in kernels, chosen by AllReduceArgs::algorithm -------------------------------

constexpr uint32_t kGate = 0;      // waits for the word at input, then adds 1 at output
constexpr uint32_t kBlockSum = 1;  // output[block] = sum over the block of what threads put in shared memory
constexpr uint32_t kMeeting = 2;   // every thread of every block waits for all others
constexpr uint32_t kMissing = 9;   // no such kernel

using Word = std::atomic<uint32_t>;

void gate(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  auto* open = static_cast<const Word*>(own->input);
  while (open->load(std::memory_order_acquire) == 0) std::this_thread::sleep_for(milliseconds(1));
  static_cast<Word*>(own->output)->fetch_add(1, std::memory_order_acq_rel);
}

void block_sum(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  const auto& me = symmetra::platform::host::current;
  auto* shared = reinterpret_cast<uint64_t*>(me.shared);
  for (uint32_t round = 0; round < 3; ++round) {
    shared[me.thread] = own->count + me.thread + me.block + round;
    if (me.barrier) me.barrier->arrive_and_wait();
    if (me.thread == 0) {
      uint64_t sum = 0;
      for (uint32_t thread = 0; thread < me.threads; ++thread) sum += shared[thread];
      static_cast<uint64_t*>(own->output)[me.block] = sum;
    }
    if (me.barrier) me.barrier->arrive_and_wait();
  }
}

void meeting(const void* args) {
  const auto* own = static_cast<const kernels::AllReduceArgs*>(args);
  const auto& me = symmetra::platform::host::current;
  auto* met = static_cast<Word*>(own->output);
  met->fetch_add(1, std::memory_order_acq_rel);
  while (met->load(std::memory_order_acquire) % (me.blocks * me.threads) != 0) std::this_thread::yield();
}

/// Writes down the channel; plain memory, so that a race is one ThreadSanitizer sees.
std::vector<uint32_t> log_of_signals;

void append_channel(const void* args) { log_of_signals.push_back(static_cast<const kernels::SignalArgs*>(args)->channel); }

/// Writes down the thread that ran it.
std::mutex threads_mutex;
std::vector<std::thread::id> threads_seen;

void note_thread(const void*) {
  const std::lock_guard lock(threads_mutex);
  threads_seen.push_back(std::this_thread::get_id());
}

}  // namespace

namespace symmetra::kernels::host {

Entry all_reduce(uint32_t algorithm, uint32_t, uint32_t) noexcept {
  switch (algorithm) {
    case kGate:
      return gate;
    case kBlockSum:
      return block_sum;
    case kMeeting:
      return meeting;
    default:
      return nullptr;
  }
}
Entry signal() noexcept { return append_channel; }
Entry agree() noexcept { return note_thread; }

}  // namespace symmetra::kernels::host

namespace {

constexpr kernels::Geometry kOneThread{1, 1, 0, 0};

std::shared_ptr<device::Device> open_host(int32_t ordinal = 0) { return device::open(device::kKindHost, ordinal); }

/// A kernel that holds up a stream until it is opened; opens at the end of its life, so
/// that a failed check cannot leave a stream waiting.
class Gate {
 public:
  ~Gate() { open(); }
  void open() { word_.store(1, std::memory_order_release); }
  void close() { word_.store(0, std::memory_order_release); }
  uint32_t passed() const { return passed_.load(std::memory_order_acquire); }
  int32_t launch(const device::Stream& stream) {
    kernels::AllReduceArgs args{};
    args.algorithm = kGate;
    args.input = &word_;
    args.output = &passed_;
    return stream.launch_all_reduce(args, kOneThread);
  }

 private:
  Word word_{0};
  Word passed_{0};
};

int32_t append(const device::Stream& stream, uint32_t channel) {
  kernels::SignalArgs args{};
  args.channel = channel;
  return stream.launch_signal(args, kOneThread);
}

int32_t launch(const device::Stream& stream, uint32_t algorithm, void* output, uint64_t count, const kernels::Geometry& geometry) {
  kernels::AllReduceArgs args{};
  args.algorithm = algorithm;
  args.output = output;
  args.count = count;
  return stream.launch_all_reduce(args, geometry);
}

void release_counted(void* data) { static_cast<Word*>(data)->fetch_add(1, std::memory_order_acq_rel); }
device::Keepalive keepalive(Word& released) { return device::Keepalive{&released, release_counted}; }

size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// ---- streams ------------------------------------------------------------------------------

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
  CHECK(!stream->done());
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(gate.passed() == 0);
  gate.open();
  stream->synchronize();
  CHECK(stream->done());
  CHECK(gate.passed() == 1);
  CHECK(to[0] == 9 && to[15] == 9 && to[16] == 7 && to[63] == 7);
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
  CHECK(stream->raw() == 0);
  CHECK(stream->copy(nullptr, &byte, 1) == EINVAL);
  CHECK(stream->copy(&byte, nullptr, 1) == EINVAL);
  CHECK(stream->fill(nullptr, 0, 1) == EINVAL);
  CHECK(stream->copy(nullptr, nullptr, 0) == 0);
  CHECK(launch(*stream, kMissing, &byte, 0, kOneThread) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {0, 1, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {1, 0, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {kernels::kMaxBlocks + 1, 1, 0, 0}) == EINVAL);
  CHECK(launch(*stream, kMeeting, &byte, 0, {256, 0xFFFFFFFF, 0, 0}) == EINVAL);
  CHECK(std::strlen(host->describe(EINVAL)) > 0);
  CHECK(std::strcmp(host->describe(0), "success") == 0);
  CHECK(kind_of([&] { host->borrow_stream(1); }) == ErrorKind::kUnsupported);
  stream->synchronize();
}

// ---- events -------------------------------------------------------------------------------

void test_events_order_streams() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto event = host->create_event();
  CHECK(event->done());
  CHECK(second->wait(*event) == 0);  // nothing recorded: nothing to wait for
  second->synchronize();
  uint32_t value = 0;  // plain: only the event orders the two streams
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  uint32_t seen = 0;
  Gate gate;
  CHECK(gate.launch(*first) == 0);
  CHECK(first->fill(bytes, 5, sizeof(value)) == 0);
  CHECK(first->record(*event) == 0);
  CHECK(second->wait(*event) == 0);
  CHECK(second->copy(reinterpret_cast<uint8_t*>(&seen), bytes, sizeof(seen)) == 0);
  CHECK(!event->done());
  CHECK(!second->done());
  gate.open();
  event->synchronize();
  CHECK(event->done());
  second->synchronize();
  CHECK(seen == 0x05050505);
}

void test_wait_means_the_last_record_at_the_call() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto event = host->create_event();
  Gate gate;
  CHECK(first->record(*event) == 0);
  event->synchronize();
  CHECK(second->wait(*event) == 0);  // the record that is reached
  CHECK(gate.launch(*first) == 0);
  CHECK(first->record(*event) == 0);  // must not hold up the wait before it
  second->synchronize();
  CHECK(!event->done());
  CHECK(second->record(*event) == 0);  // again, elsewhere: now this is the last
  event->synchronize();
  CHECK(event->done());
  CHECK(gate.passed() == 0);
  gate.open();
  first->synchronize();
}

void test_timestamps() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto start = host->create_event();
  const auto end = host->create_event();
  CHECK(kind_of([&] { end->elapsed_us(*start); }) == ErrorKind::kInvalidArgument);
  Gate gate;
  CHECK(stream->record(*start) == 0);
  CHECK(gate.launch(*stream) == 0);
  CHECK(stream->record(*end) == 0);
  start->synchronize();
  CHECK(kind_of([&] { end->elapsed_us(*start); }) == ErrorKind::kInvalidArgument);
  std::this_thread::sleep_for(milliseconds(30));
  gate.open();
  end->synchronize();
  const double elapsed_us = end->elapsed_us(*start);
  CHECK(elapsed_us >= 29000 && elapsed_us < 10e6);
  CHECK(start->elapsed_us(*end) == -elapsed_us);
}

void test_events_outlive_streams_and_the_reverse() {
  const auto host = open_host();
  const auto event = host->create_event();
  {
    const auto stream = host->create_stream();
    CHECK(stream->record(*event) == 0);
  }
  CHECK(event->done());
  event->synchronize();
  const auto stream = host->create_stream();
  CHECK(stream->wait(*event) == 0);
  Gate gate;
  CHECK(gate.launch(*stream) == 0);
  {
    const auto short_lived = host->create_event();
    CHECK(stream->record(*short_lived) == 0);
    CHECK(stream->wait(*short_lived) == 0);
  }
  gate.open();
  stream->synchronize();
}

// ---- graphs -------------------------------------------------------------------------------

void test_capture_and_replay_between_eager_calls() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto other = host->create_stream();
  Word released{0};
  log_of_signals.clear();
  auto capture = stream->begin_capture();
  CHECK(stream->capturing());
  CHECK(!other->capturing());
  CHECK(kind_of([&] { stream->begin_capture(); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { stream->synchronize(); }) == ErrorKind::kInvalidArgument);
  CHECK(append(*stream, 1) == 0);
  CHECK(append(*stream, 2) == 0);
  auto graph = capture->finish(keepalive(released));
  capture.reset();
  CHECK(!stream->capturing());
  stream->synchronize();
  CHECK(log_of_signals.empty());
  CHECK(append(*stream, 0) == 0);
  CHECK(graph->launch(*stream) == 0);
  CHECK(append(*stream, 3) == 0);
  CHECK(graph->launch(*stream) == 0);
  CHECK(append(*stream, 4) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{0, 1, 2, 3, 1, 2, 4}));
  CHECK(graph->launch(*other) == 0);
  other->synchronize();
  CHECK(log_of_signals.size() == 9);
  CHECK(released.load() == 0);
  graph.reset();
  CHECK(released.load() == 1);
}

void test_a_launch_outlives_its_graph() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Word released{0};
  Gate gate;
  auto capture = stream->begin_capture();
  CHECK(gate.launch(*stream) == 0);
  auto graph = capture->finish(keepalive(released));
  CHECK(graph->launch(*stream) == 0);
  CHECK(graph->launch(*stream) == 0);
  graph.reset();
  std::this_thread::sleep_for(milliseconds(10));
  CHECK(released.load() == 0);
  gate.open();
  stream->synchronize();
  CHECK(gate.passed() == 2);
  CHECK(released.load() == 1);
}

void test_launches_of_one_graph_never_overlap() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  Word released{0};
  log_of_signals.clear();
  auto capture = first->begin_capture();
  for (uint32_t i = 0; i < 10; ++i) CHECK(append(*first, i) == 0);
  auto graph = capture->finish(keepalive(released));
  std::vector<std::thread> callers;
  for (const auto* stream : {first.get(), second.get()}) {
    callers.emplace_back([&graph, stream] {
      for (int i = 0; i < 50; ++i) CHECK(graph->launch(*stream) == 0);
    });
  }
  for (auto& caller : callers) caller.join();
  host->synchronize();
  bool whole = log_of_signals.size() == 1000;
  for (size_t i = 0; whole && i < log_of_signals.size(); ++i) whole = log_of_signals[i] == i % 10;
  CHECK(whole);
  graph.reset();
  CHECK(released.load() == 1);
}

void test_a_graph_in_a_capture() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Word inner_released{0};
  Word outer_released{0};
  log_of_signals.clear();
  auto capture = stream->begin_capture();
  CHECK(append(*stream, 1) == 0);
  auto inner = capture->finish(keepalive(inner_released));
  capture = stream->begin_capture();
  CHECK(append(*stream, 0) == 0);
  CHECK(inner->launch(*stream) == 0);
  CHECK(append(*stream, 2) == 0);
  auto outer = capture->finish(keepalive(outer_released));
  inner.reset();
  CHECK(inner_released.load() == 0);
  CHECK(outer->launch(*stream) == 0);
  CHECK(outer->launch(*stream) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{0, 1, 2, 0, 1, 2}));
  CHECK(outer_released.load() == 0);
  outer.reset();
  CHECK(inner_released.load() == 1);
  CHECK(outer_released.load() == 1);
}

void test_abandoned_and_misused_captures() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  const auto event = host->create_event();
  Word released{0};
  log_of_signals.clear();
  {
    const auto capture = stream->begin_capture();
    CHECK(append(*stream, 1) == 0);
    CHECK(stream->record(*event) == 0);
  }
  CHECK(!stream->capturing());
  CHECK(event->done());
  CHECK(append(*stream, 2) == 0);
  stream->synchronize();
  CHECK((log_of_signals == std::vector<uint32_t>{2}));
  auto capture = stream->begin_capture();
  auto graph = capture->finish(keepalive(released));
  CHECK(kind_of([&] { capture->finish(keepalive(released)); }) == ErrorKind::kInvalidArgument);
  CHECK(released.load() == 1);  // that of the finish that threw
  auto again = stream->begin_capture();
  capture.reset();  // finished: must not end the capture after it
  CHECK(stream->capturing());
  again.reset();
  CHECK(graph->launch(*stream) == 0);  // an empty graph
  stream->synchronize();
  graph.reset();
  CHECK(released.load() == 2);
}

void test_events_in_graphs() {
  const auto host = open_host();
  const auto first = host->create_stream();
  const auto second = host->create_stream();
  const auto start = host->create_event();
  const auto end = host->create_event();
  Word released{0};
  Gate gate;
  auto capture = first->begin_capture();
  CHECK(first->wait(*start) == 0);
  CHECK(gate.launch(*first) == 0);
  CHECK(first->record(*end) == 0);
  CHECK(first->wait(*end) == 0);
  CHECK(second->wait(*end) == EOPNOTSUPP);
  auto graph = capture->finish(keepalive(released));
  CHECK(second->wait(*end) == 0);
  for (uint32_t round = 1; round <= 3; ++round) {
    gate.close();
    CHECK(second->record(*start) == 0);
    CHECK(graph->launch(*first) == 0);
    CHECK(!end->done());
    CHECK(second->wait(*end) == 0);
    gate.open();
    second->synchronize();
    CHECK(gate.passed() == round);
    CHECK(end->elapsed_us(*start) > 0);
  }
}

// ---- launches -----------------------------------------------------------------------------

void test_blocks_and_threads() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  for (const auto& [blocks, threads] : std::vector<std::pair<uint32_t, uint32_t>>{{1, 1}, {1, 3}, {4, 1}, {3, 5}, {2, 3}, {8, 4}}) {
    const kernels::Geometry geometry{blocks, threads, threads * 8, 0};
    std::vector<uint64_t> sums(blocks);
    for (uint64_t count = 0; count < 20; ++count) {
      CHECK(launch(*stream, kBlockSum, sums.data(), count, geometry) == 0);
      stream->synchronize();
      bool right = true;
      for (uint64_t block = 0; block < blocks; ++block) {
        right = right && sums[block] == threads * (count + block + 2) + threads * (threads - 1) / 2;
      }
      CHECK(right);
    }
    Word met{0};
    CHECK(launch(*stream, kMeeting, &met, 0, geometry) == 0);
    stream->synchronize();
    CHECK(met.load() == blocks * threads);
  }
}

void test_the_threads_of_a_stream_are_reused() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  threads_seen.clear();
  for (int round = 0; round < 10; ++round) CHECK(stream->launch_agree({}, {2, 3, 0, 0}) == 0);
  for (int round = 0; round < 10; ++round) CHECK(stream->launch_agree({}, {1, 2, 0, 0}) == 0);
  stream->synchronize();
  CHECK(threads_seen.size() == 80);
  std::sort(threads_seen.begin(), threads_seen.end());
  const auto distinct = std::unique(threads_seen.begin(), threads_seen.end()) - threads_seen.begin();
  CHECK(distinct == 6);
}

void test_ranks_meet_across_streams() {
  const auto first_rank = open_host(0);
  const auto second_rank = open_host(1);
  const auto first = first_rank->create_stream();
  const auto second = second_rank->create_stream();
  Gate gate;
  Word passed{0};
  kernels::AllReduceArgs args{};
  args.algorithm = kGate;
  args.input = &passed;
  Word last{0};
  args.output = &last;
  CHECK(first->launch_all_reduce(args, {2, 2, 0, 0}) == 0);  // waits for what the second does
  args.output = &passed;
  Word open{1};
  args.input = &open;
  CHECK(second->launch_all_reduce(args, kOneThread) == 0);
  first->synchronize();
  second->synchronize();
  CHECK(last.load() == 4);
}

// ---- memory -------------------------------------------------------------------------------

void test_freeing_waits_for_work() {
  const auto host = open_host();
  const auto stream = host->create_stream();
  Gate gate;
  Word released{0};
  auto memory = host->allocate(100);
  std::vector<uint8_t> from(100, 3);
  auto capture = stream->begin_capture();
  CHECK(gate.launch(*stream) == 0);
  CHECK(stream->copy(memory->address(), from.data(), from.size()) == 0);
  auto graph = capture->finish(keepalive(released));
  CHECK(graph->launch(*stream) == 0);
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(20));
    gate.open();
  });
  memory.reset();
  CHECK(gate.passed() == 1);
  CHECK(stream->done());
  opener.join();
}

void test_shared_memory() {
  const auto first = open_host(0);
  const auto second = open_host(1);
  const size_t bytes = 2 * first->shared_granularity();
  const size_t descriptors = open_descriptors();
  {
    const auto memory = first->allocate_shared(bytes);
    CHECK(memory->bytes() == bytes);
    CHECK(memory->address()[0] == 0 && memory->address()[bytes - 1] == 0);
    const int fd = memory->export_fd();
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(ftruncate(fd, 0) == -1 && errno == EPERM);
    const auto imported = second->import_shared(fd, bytes);
    CHECK(fcntl(fd, F_GETFD) == -1);
    CHECK(imported->address() != memory->address());
    memory->address()[bytes - 1] = 42;
    CHECK(imported->address()[bytes - 1] == 42);
    const auto alias = second->alias_shared(*memory);
    CHECK(alias->address() == memory->address() && alias->bytes() == bytes);
    CHECK(kind_of([&] { alias->export_fd(); }) == ErrorKind::kUnsupported);
    CHECK(kind_of([&] { imported->export_fd(); }) == ErrorKind::kUnsupported);
    CHECK(first->classify(memory->address() + bytes - 1).kind == device::kPointerVmm);
    CHECK(second->classify(memory->address()).kind == device::kPointerUnknown);
  }
  CHECK(open_descriptors() == descriptors);
}

void test_refused_imports_close_the_descriptor() {
  const auto host = open_host();
  const size_t page = host->shared_granularity();
  const size_t descriptors = open_descriptors();
  const auto memory = host->allocate_shared(page);
  CHECK(kind_of([&] { host->import_shared(memory->export_fd(), 2 * page); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->import_shared(memory->export_fd(), 0); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->import_shared(::open("/dev/null", O_RDWR | O_CLOEXEC), page); }) == ErrorKind::kInvalidArgument);
  const auto unsealed = [&] {
    const int fd = memfd_create("unsealed", MFD_CLOEXEC);
    CHECK(ftruncate(fd, static_cast<off_t>(page)) == 0);
    host->import_shared(fd, page);
  };
  CHECK(kind_of(unsealed) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->import_shared(-1, page); }) == ErrorKind::kSystem);
  CHECK(open_descriptors() == descriptors + 1);
}

void test_private_and_pinned_memory() {
  const auto host = open_host(3);
  const auto memory = host->allocate(1000);
  CHECK(reinterpret_cast<uintptr_t>(memory->address()) % 64 == 0);
  CHECK(memory->bytes() == 1000);
  std::memset(memory->address(), 1, 1000);
  CHECK(kind_of([&] { memory->export_fd(); }) == ErrorKind::kUnsupported);
  const auto info = host->classify(memory->address() + 999);
  CHECK(info.kind == device::kPointerUnknown && info.bytes == 1000 && info.device == 3);
  CHECK(info.base == reinterpret_cast<uint64_t>(memory->address()));
  const size_t page = host->shared_granularity();
  auto* owned = static_cast<uint8_t*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  {
    const auto pinned = host->pin(owned, 2 * page);
    CHECK(pinned->address() == owned && pinned->bytes() == 2 * page);
    CHECK(host->classify(owned + page).kind == device::kPointerPinned);
    CHECK(host->classify(owned + page).device == -1);
    CHECK(kind_of([&] { host->pin(owned + page, page); }) == ErrorKind::kInvalidArgument);
    CHECK(kind_of([&] { host->pin(owned + 1, page); }) == ErrorKind::kInvalidArgument);
    CHECK(kind_of([&] { host->pin(owned, page + 1); }) == ErrorKind::kInvalidArgument);
  }
  CHECK(host->classify(owned).kind == device::kPointerUnknown);
  const auto again = host->pin(owned, page);
  owned[0] = 1;  // still the caller's
  munmap(owned, 2 * page);
  CHECK(kind_of([&] { host->pin(nullptr, page); }) == ErrorKind::kInvalidArgument);
}

void test_refusals_of_memory() {
  const auto host = open_host();
  const size_t page = host->shared_granularity();
  CHECK(kind_of([&] { host->allocate(0); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->allocate(SIZE_MAX); }) == ErrorKind::kOutOfMemory);
  CHECK(kind_of([&] { host->allocate_shared(0); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->allocate_shared(page + 1); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { host->allocate_shared(SIZE_MAX - page + 1); }) == ErrorKind::kOutOfMemory);
  CHECK(kind_of([&] { host->export_ipc(nullptr); }) == ErrorKind::kUnsupported);
  CHECK(kind_of([&] { host->import_ipc({}, page); }) == ErrorKind::kUnsupported);
  CHECK(host->classify(nullptr).kind == device::kPointerUnknown);
}

// ---- the device ---------------------------------------------------------------------------

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

int main() {
  void (*const tests[])() = {
      test_enqueue_returns_while_a_kernel_runs,
      test_commands_run_in_order_also_when_the_ring_grows,
      test_destructor_drains,
      test_refusals_of_streams,
      test_events_order_streams,
      test_wait_means_the_last_record_at_the_call,
      test_timestamps,
      test_events_outlive_streams_and_the_reverse,
      test_capture_and_replay_between_eager_calls,
      test_a_launch_outlives_its_graph,
      test_launches_of_one_graph_never_overlap,
      test_a_graph_in_a_capture,
      test_abandoned_and_misused_captures,
      test_events_in_graphs,
      test_blocks_and_threads,
      test_the_threads_of_a_stream_are_reused,
      test_ranks_meet_across_streams,
      test_freeing_waits_for_work,
      test_shared_memory,
      test_refused_imports_close_the_descriptor,
      test_private_and_pinned_memory,
      test_refusals_of_memory,
      test_properties,
      test_objects_keep_what_they_need_of_the_device,
      test_many_streams_from_many_threads,
      test_idle_streams_burn_no_cpu,
  };
  const size_t descriptors = open_descriptors();
  for (auto* test : tests) test();
  CHECK(open_descriptors() == descriptors);
  std::printf("host device: %zu tests, %d checks, %d failed\n", std::size(tests), checks.load(), failures.load());
  return failures.load() == 0 ? 0 : 1;
}
