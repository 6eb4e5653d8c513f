#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/cpp/host_device/host_device.hpp"

namespace symmetra::tests {
namespace {

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

/// Pieces of one allocation, added in order by descriptor and by address, are the allocation again.
void test_assembled_pieces() {
  const auto first = open_host(0);
  const auto second = open_host(1);
  const size_t bytes = 40 * first->shared_granularity();
  const size_t descriptors = open_descriptors();
  {
    const auto memory = first->allocate_shared(bytes);
    for (size_t i = 0; i < bytes; ++i) memory->address()[i] = static_cast<uint8_t>(i / 1000);
    const auto exported = second->assemble(bytes);
    const auto aliased = first->assemble(bytes);
    size_t pieces = 0;
    for (size_t offset = 0; offset < bytes; ++pieces) {
      const device::PointerInfo piece = first->piece(memory->address() + offset + 1);
      const auto* const base = reinterpret_cast<const uint8_t*>(piece.base);
      CHECK(base == memory->address() + offset);
      exported->add(first->export_piece(base), piece.bytes);
      aliased->alias(base, piece.bytes);
      offset += piece.bytes;
    }
    CHECK(pieces > 2);
    CHECK(std::equal(memory->address(), memory->address() + bytes, exported->address()));
    memory->address()[bytes - 1] = 7;
    CHECK(exported->address()[bytes - 1] == 7 && aliased->address()[bytes - 1] == 7);
    CHECK(kind_of([&] { exported->add(first->export_piece(memory->address()), 4096); }) == ErrorKind::kInvalidArgument);
    CHECK(kind_of([&] { second->assemble(4096)->add(::open("/dev/null", O_RDWR | O_CLOEXEC), 4096); }) == ErrorKind::kInvalidArgument);
    const auto plain = first->allocate(4096);
    CHECK(kind_of([&] { first->piece(plain->address()); }) == ErrorKind::kInvalidArgument);
    CHECK(kind_of([&] { first->export_piece(plain->address()); }) == ErrorKind::kUnsupported);
  }
  CHECK(open_descriptors() <= descriptors + 1);  // the file of plain memory stays
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

/// Plain memory is that of other processes by the file it lies in: one for all allocations, whose places are used again.
void test_plain_memory_in_a_file() {
  const auto first = open_host(0);
  const auto second = open_host(1);
  const size_t page = first->shared_granularity();
  const size_t descriptors = open_descriptors();
  std::vector<std::unique_ptr<device::Memory>> many;
  for (size_t bytes : {size_t{1}, 3 * page, size_t{1000}, page + 1}) many.push_back(first->allocate(bytes));
  CHECK(open_descriptors() == descriptors + 1);
  for (size_t i = 0; i < many.size(); ++i) std::memset(many[i]->address(), static_cast<int>(i + 1), many[i]->bytes());
  for (size_t i = 0; i < many.size(); ++i) {
    const device::FilePart part = first->export_file(many[i]->address());
    CHECK((fcntl(part.fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(ftruncate(part.fd, 0) == -1 && errno == EPERM);
    const auto imported = second->import_file(part, many[i]->bytes());
    CHECK(fcntl(part.fd, F_GETFD) == -1);
    CHECK(imported->address() != many[i]->address());
    CHECK(std::memcmp(imported->address(), many[i]->address(), many[i]->bytes()) == 0);
    imported->address()[0] = 42;
    CHECK(many[i]->address()[0] == 42);
  }
  const device::FilePart freed = first->export_file(many[1]->address());
  many[1].reset();
  const auto smaller = first->allocate(2 * page);
  const device::FilePart reused = first->export_file(smaller->address());
  CHECK(reused.offset == freed.offset && smaller->address()[0] == 0);
  const device::FilePart last = first->export_file(many[3]->address());
  CHECK(last.offset != reused.offset);
  CHECK(kind_of([&] { first->export_file(smaller->address() + page); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { second->export_file(smaller->address()); }) == ErrorKind::kInvalidArgument);
  // Beyond the end of the file, also where the sum of offset and size wraps.
  CHECK(kind_of([&] { second->import_file(freed, 1 << 20); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { second->import_file({~uint64_t{0} - page + 1, reused.fd, 0}, page); }) == ErrorKind::kInvalidArgument);
  CHECK(kind_of([&] { second->import_file(last, 0); }) == ErrorKind::kInvalidArgument);
  CHECK(open_descriptors() == descriptors + 1);
}

void test_private_and_pinned_memory() {
  const auto host = open_host(3);
  const auto memory = host->allocate(1000);
  CHECK(reinterpret_cast<uintptr_t>(memory->address()) % host->shared_granularity() == 0);
  CHECK(memory->bytes() == 1000);
  std::memset(memory->address(), 1, 1000);
  CHECK(kind_of([&] { memory->export_fd(); }) == ErrorKind::kUnsupported);
  const auto info = host->classify(memory->address() + 999);
  CHECK(info.kind == device::kPointerFile && info.bytes == 1000 && info.device == 3);
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

}  // namespace

void test_memory() {
  test_freeing_waits_for_work();
  test_shared_memory();
  test_assembled_pieces();
  test_refused_imports_close_the_descriptor();
  test_plain_memory_in_a_file();
  test_private_and_pinned_memory();
  test_refusals_of_memory();
}

}  // namespace symmetra::tests
