// The CUDA backend alone on a machine with GPUs: between two processes and within one, between two devices if there are two. Needs no
// kernels.
#include "cpp/device/cuda/device.hpp"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpp/device/cuda/driver.hpp"
#include "kernels/cuda/kernels.hpp"
#include "tests/gpu/bench.hpp"
#include "tests/gpu/exporter.hpp"

// The backend calls these, and no test here launches a kernel.
namespace symmetra::kernels::cuda {
bool has_clusters() noexcept { return false; }
int32_t load_all() noexcept { return cudaSuccess; }
int32_t launch(void*, Kind, const void*, const Geometry&) noexcept { return cudaErrorNotSupported; }
}  // namespace symmetra::kernels::cuda

namespace {

using namespace symmetra;
using namespace symmetra::device;
using namespace symmetra::test;

// ---- two processes ----

void between_processes(const Bench& bench, Process& peer) {
  const Device& device = *bench.device;
  Offer offer{};
  const int fd = receive_offer(peer.socket, &offer);
  CHECK(fd >= 0);
  auto shared = device.import_shared(fd, offer.shared_bytes);
  CHECK(fcntl(fd, F_GETFD) == -1);
  CHECK(shared->bytes() == offer.shared_bytes);
  CHECK(bench.holds(shared->address(), 0x5a, kHostBytes));
  CHECK(bench.fill(shared->address(), 0xa5, offer.shared_bytes));

  auto large = device.import_ipc(offer.large, offer.large_bytes);
  CHECK(bench.holds(large->address(), 0x33, kHostBytes));
  // A second user of the handle gets the same mapping, which lives as long as either.
  auto again = device.import_ipc(offer.large, offer.large_bytes);
  CHECK(again->address() == large->address());
  large.reset();
  CHECK(bench.fill(again->address(), 0x44, offer.large_bytes));
  // Pitfall 14: small allocations share a block; the mapping starts at the exported one.
  auto first = device.import_ipc(offer.small[0], offer.small_bytes);
  auto second = device.import_ipc(offer.small[1], offer.small_bytes);
  CHECK(bench.holds(first->address(), 0x11, offer.small_bytes));
  CHECK(bench.holds(second->address(), 0x22, offer.small_bytes));
  first.reset();
  CHECK(bench.holds(second->address(), 0x22, offer.small_bytes));
  // Memory imported from another process cannot be exported again, so classify must not report it as exportable.
  const PointerInfo imported = device.classify(again->address());
  CHECK(imported.kind == kPointerVmm && imported.bytes == offer.large_bytes);
  std::printf("  imported: kind %u, device %d\n", imported.kind, imported.device);

  CHECK(send_byte(peer.socket));
  CHECK(receive_byte(peer.socket));
  // After its last user has closed it, a handle opens again.
  again.reset();
  large = device.import_ipc(offer.large, offer.large_bytes);
  CHECK(bench.holds(large->address(), 0x44, kHostBytes));
  large.reset();
  second.reset();
  shared.reset();
  const int status = peer.wait();
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/// Pitfall 1: a peer killed while its memory is mapped here.
void exporter_killed(const Bench& bench, Process& peer) {
  const Device& device = *bench.device;
  Offer offer{};
  const int fd = receive_offer(peer.socket, &offer);
  CHECK(fd >= 0);
  auto shared = device.import_shared(fd, offer.shared_bytes);
  auto large = device.import_ipc(offer.large, offer.large_bytes);
  peer.kill();
  CHECK(WIFSIGNALED(peer.wait()));
  // The mapping keeps the memory.
  CHECK(bench.holds(shared->address(), 0x5a, kHostBytes));
  CHECK(bench.fill(shared->address(), 0x77, offer.shared_bytes));
  CHECK(bench.holds(shared->address(), 0x77, kHostBytes));
  large.reset();
  shared.reset();
  const auto own = device.allocate(kHostBytes);
  CHECK(bench.fill(own->address(), 0x66, kHostBytes));
  CHECK(bench.holds(own->address(), 0x66, kHostBytes));
}

// ---- one process ----

void properties(const Bench& bench) {
  const Properties found = bench.device->properties();
  std::printf("  %s, %s\n", bench.device->name().c_str(), bench.device->versions().c_str());
  CHECK(found.kind == kKindCuda && found.ordinal == 0);
  CHECK(found.memory_bytes > (1u << 30) && found.multiprocessors > 0 && found.warp == 32);
  CHECK(found.major >= 7);
  CHECK(found.shared_fd != 0 && found.legacy_ipc != 0);
  const uint8_t zero[16] = {};
  CHECK(std::memcmp(found.uuid, zero, sizeof(zero)) != 0);
  CHECK(bench.device->can_access(0));
  Uuid own;
  std::copy(std::begin(found.uuid), std::end(found.uuid), own.begin());
  CHECK(bench.device->ordinal_of(own) == bench.device->properties().ordinal && bench.device->ordinal_of({}) == -1);
  CHECK(bench.device->native_atomics(own) && !bench.device->native_atomics({}));
  CHECK(std::strlen(bench.device->describe(cudaErrorInvalidValue)) > 0);
  CHECK(throws(ErrorKind::kInvalidArgument, [] { cuda::open(1000); }) && says("1000"));
  CHECK(throws(ErrorKind::kInvalidArgument, [] { cuda::open(-1); }));
}

void alias(const Bench& bench, const Bench& other) {
  const size_t bytes = other.device->shared_granularity();
  const auto memory = other.device->allocate_shared(bytes);
  auto mapped = bench.device->alias_shared(*memory);
  CHECK(mapped->address() != memory->address() && mapped->bytes() == bytes);
  CHECK(bench.holds(mapped->address(), 0, kHostBytes));
  CHECK(bench.fill(mapped->address(), 0x3c, bytes));
  CHECK(other.holds(memory->address(), 0x3c, kHostBytes));
  // An import by descriptor also works within a process.
  const auto imported = bench.device->import_shared(memory->export_fd(), bytes);
  CHECK(bench.holds(imported->address(), 0x3c, kHostBytes));
  mapped.reset();
  CHECK(other.holds(memory->address(), 0x3c, kHostBytes));
}

void peer_access(const Bench& bench, const Bench& other) {
  const int32_t ordinal = other.device->properties().ordinal;
  if (!bench.device->can_access(ordinal)) return;
  bench.device->enable_peer(ordinal);
  bench.device->enable_peer(ordinal);
  CHECK(cudaGetLastError() == cudaSuccess);
  const auto memory = other.device->allocate(kHostBytes);
  CHECK(bench.fill(memory->address(), 0x21, kHostBytes));
  CHECK(other.holds(memory->address(), 0x21, kHostBytes));
  const auto shared = other.device->allocate_shared(other.device->shared_granularity());
  other.device->open_to_peers(*shared);
  CHECK(bench.fill(shared->address(), 0x22, kHostBytes));
  CHECK(other.holds(shared->address(), 0x22, kHostBytes));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { other.device->open_to_peers(*memory); }));
}

/// Prints the difference.
bool is(const PointerInfo& found, uint32_t kind, int32_t ordinal, const uint8_t* base, uint64_t bytes) {
  const auto start = reinterpret_cast<uint64_t>(base);
  if (found.kind == kind && found.device == ordinal && found.base == start && found.bytes == bytes) return true;
  std::printf("  kind %u, device %d, base %+lld, bytes %llu\n", found.kind, found.device, static_cast<long long>(found.base - start),
              static_cast<unsigned long long>(found.bytes));
  return false;
}

/// Pitfall 13: memory that can be exported, and memory that cannot.
void classify(const Bench& bench) {
  const Device& device = *bench.device;
  const auto plain = device.allocate(1 << 20);
  CHECK(is(device.classify(plain->address() + 4097), kPointerDevice, 0, plain->address(), plain->bytes()));

  const auto shared = device.allocate_shared(device.shared_granularity());
  CHECK(is(device.classify(shared->address() + 4096), kPointerVmm, 0, shared->address(), shared->bytes()));
  CHECK(is(device.classify(bench.pages.address() + 5), kPointerPinned, -1, bench.pages.address(), kHostBytes));

  void* pointer = nullptr;
  const auto stream = reinterpret_cast<cudaStream_t>(bench.stream->raw());
  CHECK(cudaMallocAsync(&pointer, 1 << 20, stream) == cudaSuccess);
  CHECK(device.classify(static_cast<uint8_t*>(pointer) + 16).kind == kPointerPool);
  CHECK(cudaFreeAsync(pointer, stream) == cudaSuccess);
  CHECK(cudaMallocManaged(&pointer, 4096) == cudaSuccess);
  CHECK(device.classify(static_cast<uint8_t*>(pointer)).kind == kPointerManaged);
  CHECK(cudaFree(pointer) == cudaSuccess);
  CHECK(cudaHostAlloc(&pointer, 4096, cudaHostAllocDefault) == cudaSuccess);
  CHECK(device.classify(static_cast<uint8_t*>(pointer)).kind == kPointerPinned);
  CHECK(cudaFreeHost(pointer) == cudaSuccess);

  const std::vector<uint8_t> pageable(4096);
  for (const uint8_t* const unknown : {pageable.data(), static_cast<const uint8_t*>(nullptr)}) {
    CHECK(is(device.classify(unknown), kPointerUnknown, -1, nullptr, 0));
  }
}

/// Host memory is pinned in place, once for all users.
void pin(const Bench& bench, const Bench& other) {
  const HostPages pages;
  auto first = bench.device->pin(pages.address(), kHostBytes);
  auto second = other.device->pin(pages.address(), kHostBytes);
  first.reset();
  CHECK(other.fill(pages.address(), 0x19, kHostBytes));
  CHECK(pages.address()[0] == 0x19 && pages.address()[kHostBytes - 1] == 0x19);
  CHECK(second->address() == pages.address() && second->bytes() == kHostBytes);
  second.reset();
  CHECK(bench.device->classify(pages.address()).kind == kPointerUnknown);
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { bench.device->pin(pages.address() + 8, 4096); }));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { bench.device->pin(pages.address(), 100); }) && says("100"));
}

void errors(const Bench& bench) {
  const Device& device = *bench.device;
  CHECK(throws(ErrorKind::kOutOfMemory, [&] { device.allocate(size_t{1} << 44); }) && says("17592186044416") && says("free"));
  CHECK(throws(ErrorKind::kOutOfMemory, [&] { device.allocate_shared(size_t{1} << 44); }) && says("cuMemCreate"));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { device.allocate(0); }));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { device.allocate_shared(0); }));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { device.allocate_shared(4096); }) && says("4096"));
  const auto plain = device.allocate(4096);
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { plain->export_fd(); }));
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { device.alias_shared(*plain); }));
  const int wrong = open("/dev/null", O_RDONLY);
  CHECK(throws(ErrorKind::kDevice, [&] { device.import_shared(wrong, device.shared_granularity()); }));
  CHECK(fcntl(wrong, F_GETFD) == -1);
  const int unread = open("/dev/null", O_RDONLY);
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { device.import_shared(unread, 1); }));
  CHECK(fcntl(unread, F_GETFD) == -1);
  const IpcHandle garbage{};
  CHECK(throws(ErrorKind::kDevice, [&] { device.import_ipc(garbage, 4096); }));
  CHECK(bench.stream->fill(nullptr, 0, 16) != 0);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(bench.fill(plain->address(), 1, 4096));
}

void events(const Bench& bench) {
  const auto start = bench.device->create_event();
  const auto end = bench.device->create_event();
  CHECK(start->done());
  std::atomic<bool> gate{false};
  const auto wait = [](void* data) {
    while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::yield();
  };
  const auto stream = reinterpret_cast<cudaStream_t>(bench.stream->raw());
  CHECK(bench.stream->record(*start) == 0);
  CHECK(cudaLaunchHostFunc(stream, wait, &gate) == cudaSuccess);
  CHECK(bench.stream->record(*end) == 0);
  const auto after = bench.device->create_stream();
  CHECK(after->wait(*end) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(!end->done() && !after->done() && !bench.stream->done());
  CHECK(cudaGetLastError() == cudaSuccess);
  gate = true;
  end->synchronize();
  CHECK(end->done());
  after->synchronize();
  CHECK(end->elapsed_us(*start) > 10000.0);
  bench.device->synchronize();
}

void borrowed_streams(const Bench& bench, const Bench& other) {
  const auto memory = bench.device->allocate(kHostBytes);
  uint8_t value = 1;
  for (const cudaStream_t raw : {static_cast<cudaStream_t>(nullptr), cudaStreamLegacy, cudaStreamPerThread}) {
    const auto stream = bench.device->borrow_stream(reinterpret_cast<uint64_t>(raw));
    CHECK(stream->raw() == reinterpret_cast<uint64_t>(raw));
    CHECK(!stream->capturing());
    CHECK(stream->fill(memory->address(), ++value, kHostBytes) == 0);
    stream->synchronize();
    CHECK(bench.holds(memory->address(), value, kHostBytes));
  }
  cudaStream_t blocking = nullptr;
  CHECK(cudaSetDevice(0) == cudaSuccess && cudaStreamCreate(&blocking) == cudaSuccess);
  const auto legacy = bench.device->borrow_stream(0);
  CHECK(throws(ErrorKind::kUnsupported, [&] { legacy->begin_capture(); }));
  {
    const auto stream = bench.device->borrow_stream(reinterpret_cast<uint64_t>(blocking));
    const auto capture = stream->begin_capture();
    // Queries of the legacy stream and of the captured one do not invalidate the capture.
    CHECK(!legacy->capturing() && stream->capturing());
    CHECK(bench.device->borrow_stream(reinterpret_cast<uint64_t>(blocking))->capturing());
    CHECK(stream->fill(memory->address(), 9, kHostBytes) == 0);
    static std::atomic<int> released{0};
    const auto graph = capture->finish({&released, [](void* count) { *static_cast<std::atomic<int>*>(count) += 1; }});
    CHECK(graph->launch(*stream) == 0);
    stream->synchronize();
    CHECK(bench.holds(memory->address(), 9, kHostBytes));
  }
  CHECK(cudaStreamQuery(blocking) == cudaSuccess);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
  const bool two = other.device->properties().ordinal != 0;
  CHECK(!two || throws(ErrorKind::kInvalidArgument, [&] { other.device->borrow_stream(bench.stream->raw()); }));
}

// ---- graphs ----

/// Counts the releases of a keepalive.
struct Released {
  std::atomic<int> times{0};
  Keepalive keepalive() {
    return {this, [](void* self) { static_cast<Released*>(self)->times += 1; }};
  }
  bool exactly_once() {
    const bool released = within_5_s([&] { return times != 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return released && times == 1;
  }
};

void graph_replay(const Bench& bench) {
  Released released;
  const auto memory = bench.device->allocate(kHostBytes);
  CHECK(bench.fill(memory->address(), 1, kHostBytes));
  auto capture = bench.stream->begin_capture();
  CHECK(bench.stream->capturing());
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { bench.stream->begin_capture(); }));
  CHECK(bench.stream->fill(memory->address(), 2, kHostBytes) == 0);
  auto graph = capture->finish(released.keepalive());
  CHECK(!bench.stream->capturing());
  Released second;
  CHECK(throws(ErrorKind::kInvalidArgument, [&] { capture->finish(second.keepalive()); }));
  CHECK(second.exactly_once());
  capture.reset();
  CHECK(bench.holds(memory->address(), 1, kHostBytes));
  for (int replay = 0; replay < 3; ++replay) {
    CHECK(bench.fill(memory->address(), 1, kHostBytes));
    CHECK(graph->launch(*bench.stream) == 0);
    CHECK(bench.holds(memory->address(), 2, kHostBytes));
  }
  CHECK(released.times == 0);
  graph.reset();
  CHECK(released.exactly_once());
}

void capture_abandoned(const Bench& bench) {
  const auto memory = bench.device->allocate(kHostBytes);
  {
    const auto capture = bench.stream->begin_capture();
    CHECK(bench.stream->fill(memory->address(), 3, kHostBytes) == 0);
  }
  CHECK(!bench.stream->capturing());
  CHECK(bench.fill(memory->address(), 4, kHostBytes) && bench.holds(memory->address(), 4, kHostBytes));
  // A graph releases its keepalive also if its capture was invalidated, finished or not.
  const auto spoil = [&] { return cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(bench.stream->raw())); };
  {
    const auto capture = bench.stream->begin_capture();
    CHECK(bench.stream->fill(memory->address(), 3, kHostBytes) == 0);
    CHECK(spoil() != cudaSuccess);
    cudaGetLastError();
  }
  CHECK(bench.fill(memory->address(), 5, kHostBytes) && bench.holds(memory->address(), 5, kHostBytes));
  Released released;
  {
    const auto capture = bench.stream->begin_capture();
    CHECK(spoil() != cudaSuccess);
    cudaGetLastError();
    CHECK(throws(ErrorKind::kDevice, [&] { capture->finish(released.keepalive()); }));
    CHECK(released.exactly_once());
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(bench.fill(memory->address(), 6, kHostBytes) && bench.holds(memory->address(), 6, kHostBytes));
}

void graph_dropped_in_flight(const Bench& bench) {
  Released released;
  std::atomic<bool> gate{false};
  const auto wait = [](void* data) {
    while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::yield();
  };
  const auto memory = bench.device->allocate(kHostBytes);
  CHECK(bench.fill(memory->address(), 1, kHostBytes));
  auto capture = bench.stream->begin_capture();
  CHECK(cudaLaunchHostFunc(reinterpret_cast<cudaStream_t>(bench.stream->raw()), wait, &gate) == cudaSuccess);
  CHECK(bench.stream->fill(memory->address(), 8, kHostBytes) == 0);
  auto graph = capture->finish(released.keepalive());
  CHECK(graph->launch(*bench.stream) == 0);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(released.times == 0);
    gate = true;
  });
  graph.reset();
  CHECK(!gate);
  opener.join();
  bench.stream->synchronize();
  CHECK(bench.holds(memory->address(), 8, kHostBytes));
  CHECK(released.exactly_once());
}

/// Cold calls, from the capturing thread and another, do not invalidate a capture by another owner.
void cold_calls_while_capturing(const Bench& bench) {
  cudaStream_t theirs = nullptr;
  CHECK(cudaSetDevice(0) == cudaSuccess && cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking) == cudaSuccess);
  const auto memory = bench.device->allocate(kHostBytes);
  const auto event = bench.device->create_event();
  CHECK(bench.stream->record(*event) == 0);
  const HostPages pages;
  const auto cold_calls = [&] {
    bench.device->allocate(8 << 20);
    bench.device->allocate_shared(bench.device->shared_granularity());
    bench.device->pin(pages.address(), kHostBytes);
    bench.device->create_stream();
    bench.device->create_event();
    event->synchronize();
    CHECK(event->done() && bench.stream->done());
    CHECK(bench.device->classify(memory->address()).kind == kPointerDevice);
    CHECK(bench.device->borrow_stream(reinterpret_cast<uint64_t>(theirs))->capturing());
    CHECK(!bench.device->borrow_stream(bench.stream->raw())->capturing());
    bench.device->synchronize();
  };
  CHECK(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaMemsetAsync(memory->address(), 7, kHostBytes, theirs) == cudaSuccess);
  cold_calls();
  std::thread(cold_calls).join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(theirs, &graph) == cudaSuccess);
  CHECK(graph != nullptr && cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(theirs) == cudaSuccess);
}

/// The current device is that of the thread: of the runtime's choice, or of the driver's context.
void current_device(uint32_t devices) {
  const int32_t last = static_cast<int32_t>(devices) - 1;
  std::thread([] { CHECK(cuda::current() == 0); }).join();
  std::thread([=] {
    CHECK(cudaSetDevice(last) == cudaSuccess && cuda::current() == last);
    CHECK(cudaSetDevice(0) == cudaSuccess && cuda::current() == 0);
    CUcontext context = nullptr;
    CHECK(cuda::driver().cuDevicePrimaryCtxRetain(&context, last) == CUDA_SUCCESS);
    CHECK(cuda::driver().cuCtxSetCurrent(context) == CUDA_SUCCESS && cuda::current() == last);
  }).join();
}

/// Memory may be dropped while enqueued work uses it.
void dropped_in_use(const Bench& bench, const Bench& other) {
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const size_t bytes = bench.device->shared_granularity();
  const auto owner = other.device->allocate_shared(bytes);
  auto shared = bench.device->allocate_shared(bytes);
  auto mapped = bench.device->alias_shared(*owner);
  auto plain = bench.device->allocate(bytes);
  for (std::unique_ptr<Memory>* const memory : {&shared, &mapped, &plain}) {
    CHECK(cudaLaunchHostFunc(reinterpret_cast<cudaStream_t>(bench.stream->raw()), sleep, nullptr) == cudaSuccess);
    CHECK(bench.stream->fill((*memory)->address(), 5, bytes) == 0);
    memory->reset();
    bench.stream->synchronize();
  }
  CHECK(other.holds(owner->address(), 5, kHostBytes));
}

/// A device whose memory is exhausted can still be waited for, again and again.
void waits_without_memory(const Bench& bench) {
  std::vector<std::unique_ptr<Memory>> taken;
  for (size_t bytes = size_t{1} << 34; bytes > 0; bytes /= 2) {
    const auto take = [&] {
      for (;;) taken.push_back(bench.device->allocate(bytes));
    };
    CHECK(throws(ErrorKind::kOutOfMemory, take));
  }
  for (int round = 0; round < 3; ++round) bench.device->synchronize();
}

// ---- threads, contexts, leaks ----

void callers_context_restored(const Bench& bench, const Bench& other) {
  const int32_t ordinal = other.device->properties().ordinal;
  CHECK(cudaSetDevice(ordinal) == cudaSuccess);
  const auto memory = bench.device->allocate(kHostBytes);
  CHECK(bench.fill(memory->address(), 1, kHostBytes));
  int now = -1;
  CHECK(cudaGetDevice(&now) == cudaSuccess && now == ordinal);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  std::thread([&] {
    CHECK(bench.fill(memory->address(), 2, kHostBytes));
    bench.device->allocate(4096);
    CUcontext context = nullptr;
    CHECK(cuda::driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == nullptr);
  }).join();
}

/// Ranks as threads, each of which opens the device itself.
void ranks_as_threads(uint32_t devices) {
  constexpr uint32_t kRanks = 4;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([rank, devices] {
      const Bench bench(static_cast<int32_t>(rank % devices));
      const Bench next(static_cast<int32_t>((rank + 1) % devices));
      for (int round = 0; round < 5; ++round) alias(bench, next);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK(cudaSetDevice(0) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess);
  return free;
}

int open_descriptors() {
  int entries = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) entries += 1;
  closedir(folder);
  return entries;
}

void memory_flat(const Bench& bench) {
  const Device& device = *bench.device;
  const size_t bytes = 16 * device.shared_granularity();
  const auto round = [&] {
    const auto shared = device.allocate_shared(bytes);
    const auto imported = device.import_shared(shared->export_fd(), bytes);
    const auto mapped = device.alias_shared(*shared);
    const auto plain = device.allocate(bytes);
  };
  for (int warm = 0; warm < 10; ++warm) round();
  const size_t free_before = free_bytes();
  const int descriptors_before = open_descriptors();
  for (int times = 0; times < 200; ++times) round();
  // One allocation lost in 200 rounds would show.
  CHECK(free_bytes() + bytes > free_before);
  CHECK(open_descriptors() == descriptors_before);
}

void graphs_flat(const Bench& bench) {
  Released released;
  const auto memory = bench.device->allocate(kHostBytes);
  const auto round = [&] {
    const auto capture = bench.stream->begin_capture();
    for (int node = 0; node < 20; ++node) bench.stream->fill(memory->address(), 1, kHostBytes);
    capture->finish(released.keepalive())->launch(*bench.stream);
    bench.stream->synchronize();
  };
  for (int warm = 0; warm < 10; ++warm) round();
  const size_t free_before = free_bytes();
  for (int times = 0; times < 200; ++times) round();
  CHECK(free_bytes() + (2 << 20) > free_before);
  CHECK(within_5_s([&] { return released.times == 210; }));
}

void run(const char* name, const std::function<void()>& test) {
  const int before = failures;
  std::printf("%s\n", name);
  try {
    test();
  } catch (const std::exception& error) {
    std::printf("  threw: %s\n", error.what());
    failures += 1;
  }
  if (failures != before) std::printf("  FAILED\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Process living = start_exporter();
  Process dying = start_exporter();
  const uint32_t devices = cuda::count();
  if (devices == 0) {
    std::printf("device_test: no CUDA device\n");
    return 2;
  }
  const Bench bench(0);
  const Bench other(static_cast<int32_t>(devices) - 1);
  run("properties", [&] { properties(bench); });
  run("between processes", [&] { between_processes(bench, living); });
  run("exporter killed", [&] { exporter_killed(bench, dying); });
  run("alias", [&] { alias(bench, other); });
  run("peer access", [&] { peer_access(bench, other); });
  run("classify", [&] { classify(bench); });
  run("pin", [&] { pin(bench, other); });
  run("errors", [&] { errors(bench); });
  run("events", [&] { events(bench); });
  run("borrowed streams", [&] { borrowed_streams(bench, other); });
  run("graph replay", [&] { graph_replay(bench); });
  run("capture abandoned", [&] { capture_abandoned(bench); });
  run("graph dropped in flight", [&] { graph_dropped_in_flight(bench); });
  run("cold calls while capturing", [&] { cold_calls_while_capturing(bench); });
  run("current device", [&] { current_device(devices); });
  run("dropped in use", [&] { dropped_in_use(bench, other); });
  run("waits without memory", [&] { waits_without_memory(bench); });
  run("caller's context restored", [&] { callers_context_restored(bench, other); });
  run("ranks as threads", [&] { ranks_as_threads(devices); });
  run("memory flat", [&] { memory_flat(bench); });
  run("graphs flat", [&] { graphs_flat(bench); });
  std::printf("device_test: %u device(s), %d checks, %d failures\n", devices, checks.load(), failures.load());
  return failures == 0 ? 0 : 1;
}
