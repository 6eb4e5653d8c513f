// The HIP backend over the runtime of memory_runtime.cc: ownership, descriptors between processes, and
// launches. Kernels do not run.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cpp/device/hip/device.hpp"
#include "cpp/device/hip/version.hpp"
#include "tests/hip/memory_runtime.hpp"

using namespace symmetra;
using namespace symmetra::device;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

namespace {

constexpr size_t kBytes = size_t{4} << 20;

const test::Ledger& ledger() {
  void* const library = dlopen(device::hip::kRuntimeLibrary, RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != nullptr);
  const auto tell = reinterpret_cast<const test::Ledger* (*)()>(dlsym(library, "symmetra_test_ledger"));
  CHECK(tell != nullptr);
  return *tell();
}

/// Runs `body`, which must throw an error of this kind with these words.
template <class Body>
void refused(ErrorKind kind, const char* words, Body body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() != kind || std::strstr(error.what(), words) == nullptr) std::fprintf(stderr, "%s\n", error.what());
    CHECK(error.kind() == kind);
    CHECK(std::strstr(error.what(), words) != nullptr);
    return;
  }
  CHECK(!"nothing was thrown");
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

void devices() {
  CHECK(device::hip::count() == 2);
  const auto device = device::hip::open(1);
  const Properties properties = device->properties();
  CHECK(properties.kind == kKindHip && properties.ordinal == 1 && properties.warp == 64 && properties.uuid[15] == 2);
  CHECK(device->ordinal_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}) >= 0 && device->ordinal_of({}) == -1);
  CHECK(device->native_atomics({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}));  // itself
  CHECK(device->native_atomics({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));  // the other, by its link
  CHECK(!device->native_atomics({}));                                               // no device of this process
  CHECK(device->name() == "memory 1");
  CHECK(device->versions() == "driver 5.2.21153, runtime 5.2.21153");
  CHECK(ledger().modules == 1 && ledger().bundled);
  device::hip::open(1);
  CHECK(ledger().modules == 1);  // kernels are loaded once a device
  refused(ErrorKind::kInvalidArgument, "HIP device 2, but the ordinal must be in 0..2", [] { device::hip::open(2); });
}

void plain_memory() {
  const auto device = device::hip::open(0);
  const int before = ledger().live;
  {
    const auto memory = device->allocate(1000);
    const PointerInfo inner = device->classify(memory->address() + 10);
    CHECK(inner.kind == kPointerDevice && inner.device == 0);
    CHECK(inner.base == reinterpret_cast<uint64_t>(memory->address()) && inner.bytes == 1000);
    CHECK(device->classify(reinterpret_cast<const uint8_t*>(&before)).kind == kPointerUnknown);
    refused(ErrorKind::kInvalidArgument, "export_fd of memory that is not from allocate_shared", [&] { memory->export_fd(); });
    refused(ErrorKind::kInvalidArgument, "alias_shared of memory", [&] { device->alias_shared(*memory); });
    refused(ErrorKind::kInvalidArgument, "0 bytes", [&] { device->allocate(0); });
    refused(ErrorKind::kOutOfMemory, "7 bytes are free", [&] { device->allocate(size_t{2} << 40); });
  }
  CHECK(ledger().live == before);
}

/// In another process, like a peer: reads 1, writes 2.
int peer(int fd) {
  const auto device = device::hip::open(1);
  const int before = ledger().live;
  {
    const auto imported = device->import_shared(fd, kBytes);
    CHECK(!is_open(fd));
    CHECK(imported->bytes() == kBytes && imported->address()[kBytes - 1] == 1);
    imported->address()[0] = 2;
  }
  CHECK(ledger().live == before);
  return 0;
}

void shared_memory() {
  const auto device = device::hip::open(0);
  const auto other = device::hip::open(1);
  const size_t granularity = device->shared_granularity();
  CHECK(kBytes % granularity == 0);
  refused(ErrorKind::kInvalidArgument, "positive multiple", [&] { device->allocate_shared(granularity + 1); });
  const int before = ledger().live;
  {
    const auto memory = device->allocate_shared(kBytes);
    CHECK(ledger().flags == device::hip::kSharedFlags);
    CHECK(memory->address()[0] == 0 && memory->address()[kBytes - 1] == 0);
    memory->address()[kBytes - 1] = 1;
    {
      const auto alias = other->alias_shared(*memory);
      CHECK(alias->address() == memory->address() && ledger().peers_enabled >= 1);
      other->alias_shared(*memory);  // access that is there already is no error
    }
    const int fd = memory->export_fd();
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    const pid_t child = fork();
    if (child == 0) _exit(peer(fd));
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(memory->address()[0] == 2);
    const int wrong = memory->export_fd();
    refused(ErrorKind::kInvalidArgument, "but the memory has", [&] { other->import_shared(wrong, 2 * kBytes); });
    CHECK(!is_open(wrong));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    refused(ErrorKind::kInvalidArgument, "not from export_fd", [&] { other->import_shared(pipes[0], kBytes); });
    CHECK(!is_open(pipes[0]));
    close(pipes[1]);
    close(fd);
  }
  CHECK(ledger().live == before);
}

void streams_and_events() {
  const auto device = device::hip::open(1);
  const auto stream = device->create_stream();
  const auto borrowed = device->borrow_stream(stream->raw());
  CHECK(borrowed->raw() == stream->raw() && borrowed->done());
  refused(ErrorKind::kInvalidArgument, "a stream of device 1, but it must be of device 0",
          [&] { device::hip::open(0)->borrow_stream(stream->raw()); });
  const auto event = device->create_event();
  CHECK(event->done());
  CHECK(stream->record(*event) == 0 && !event->done());
  CHECK(stream->wait(*event) == 0 && stream->record(*event) == 0 && event->done());
  refused(ErrorKind::kUnsupported, "legacy default stream", [&] { device->borrow_stream(0)->begin_capture(); });
}

void graphs() {
  const auto device = device::hip::open(0);
  const auto stream = device->create_stream();
  const auto memory = device->allocate(1);
  const auto word = device->allocate(sizeof(uint32_t));
  auto* const stored = reinterpret_cast<uint32_t*>(word->address());
  int released = 0;
  const Keepalive keepalive{&released, [](void* data) { *static_cast<int*>(data) += 1; }};
  const int before = ledger().live;
  {
    auto capture = stream->begin_capture();
    CHECK(stream->capturing());
    refused(ErrorKind::kInvalidArgument, "being captured already", [&] { stream->begin_capture(); });
    memory->address()[0] = 5;
    *stored = 1;
    CHECK(stream->fill(memory->address(), 9, 1) == 0 && memory->address()[0] == 5);
    CHECK(stream->store(stored, 0xFEDCBA98) == 0 && *stored == 1);
    const auto graph = capture->finish(keepalive);
    CHECK(!stream->capturing() && memory->address()[0] == 5);
    refused(ErrorKind::kInvalidArgument, "finished already", [&] { capture->finish(keepalive); });
    CHECK(released == 1);  // by the finish that failed
    CHECK(graph->launch(*stream) == 0 && memory->address()[0] == 9 && *stored == 0xFEDCBA98);
  }
  CHECK(released == 2 && ledger().live == before);
  stream->begin_capture();  // dropped at once
  CHECK(!stream->capturing());
}

void chains() {
  const auto device = device::hip::open(0);
  const auto stream = device->create_stream();
  const auto branch = device->create_stream();
  const auto event = device->create_event(false);
  const auto memory = device->allocate(1);
  int released = 0;
  const Keepalive keepalive{&released, [](void* data) { *static_cast<int*>(data) += 1; }};
  CHECK(stream->id() == 0 && stream->capture_id() == 0);
  refused(ErrorKind::kInvalidArgument, "not being captured", [&] { stream->begin_chain(nullptr, keepalive); });
  CHECK(released == 1);
  const auto capture = stream->begin_capture();
  const auto other = branch->begin_capture();
  CHECK(stream->capture_id() != 0 && stream->capture_id() != branch->capture_id());
  const auto chain = stream->begin_chain(event.get(), keepalive);
  CHECK(released == 2);  // graphs of HIP hold nothing
  CHECK(ledger().captured.waits == 1 && ledger().captured.records == 0);
  const auto call = [&](const device::Stream& on) {
    CHECK(on.fill(memory->address(), 1, 1) == 0);
    chain->extend(on);
    CHECK(ledger().captured.waits == 1 && ledger().captured.records == 1 && ledger().captured.before == 1);
  };
  call(*stream);
  chain->follow(*stream);
  CHECK(ledger().captured.added == 0);  // the stream waits already
  call(*stream);
  chain->extend(*stream);  // without work
  chain->follow(*branch);
  CHECK(ledger().captured.added == 1);
  call(*branch);
}

void launches() {
  const auto device = device::hip::open(1);
  const auto stream = device->create_stream();
  kernels::SignalArgs signal{};
  signal.world = 2;
  signal.action = kernels::kSignalBarrier;
  signal.pads[1] = reinterpret_cast<uint32_t*>(0x1234);
  CHECK(stream->launch(signal, {1, 64, 48, 1}) == 0);
  const auto& launch = ledger().launch;
  CHECK(std::strstr(launch.kernel, "6signal") != nullptr && launch.device == 1);
  CHECK(launch.blocks == 1 && launch.threads == 64 && launch.shared_bytes == 48);
  CHECK(reinterpret_cast<uint64_t>(launch.stream) == stream->raw());
  CHECK(std::memcmp(launch.args, &signal, sizeof(launch.args)) == 0);
  signal.world = 17;
  CHECK(stream->launch(signal, {1, 64, 48, 1}) == hipErrorInvalidValue);

  kernels::AllReduceArgs reduce{};
  reduce.count = 1000;
  reduce.world = 4;
  reduce.dtype = kernels::kBF16;
  reduce.algorithm = kernels::kOneShotSentinel;
  reduce.lanes_log2 = 5;
  reduce.slot_packets = 1000;
  CHECK(stream->launch(reduce, {4, 128, 16 + 128 * 16, 1}) == 0);
  CHECK(std::strstr(launch.kernel, "8one_shotINS0_8SentinelINS0_3SumINS0_4BF16EEEEELj4E") != nullptr);
  CHECK(launch.blocks == 4 && launch.threads == 128);
  CHECK(stream->launch(reduce, {4, 64, 16 + 128 * 16, 1}) == hipErrorInvalidValue);  // fewer threads than items
  CHECK(std::string(device->describe(hipErrorInvalidValue)) == "words");
}

}  // namespace

int main() {
  devices();
  plain_memory();
  shared_memory();
  streams_and_events();
  graphs();
  chains();
  launches();
  std::printf("hip room: all passed over %s\n", device::hip::kRuntimeLibrary);
  return 0;
}
