#include "cpp/device/host/device.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "cpp/device/host/event.hpp"
#include "cpp/device/host/ipc.hpp"
#include "cpp/device/host/memory.hpp"
#include "cpp/device/host/multicast.hpp"
#include "cpp/device/host/pieces.hpp"
#include "cpp/device/host/queue.hpp"
#include "cpp/device/host/registry.hpp"
#include "cpp/device/host/stream.hpp"

namespace symmetra::device::host {
namespace {

/// The model of the CPU, if the system reports it.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return "host";
}

std::string compiler_and_system() {
#ifdef __clang__
  std::string versions = "Clang " __clang_version__;
#else
  std::string versions = "GCC " __VERSION__;
#endif
  utsname system{};
  if (::uname(&system) == 0) versions = versions + ", " + system.sysname + " " + system.release;
  return versions;
}

class Device final : public device::Device {
 public:
  explicit Device(int32_t ordinal) : registry_(std::make_shared<Registry>(ordinal)) {}

  Properties properties() const noexcept override {
    Properties properties{};
    properties.kind = kKindHost;
    properties.ordinal = registry_->ordinal();
    properties.memory_bytes = physical_bytes();
    properties.multiprocessors = std::max(1U, std::thread::hardware_concurrency());
    properties.shared_fd = 1;
    properties.warp = 1;
    properties.multicast = 1;
    return properties;
  }
  const std::string& name() const noexcept override { return name_; }
  const std::string& versions() const noexcept override { return versions_; }
  const char* describe(int32_t native_code) const noexcept override { return host::describe(native_code); }

  std::unique_ptr<Memory> allocate(size_t bytes) const override { return host::allocate(registry_, plain_file_, bytes); }
  std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const override { return host::pin(registry_, address, bytes); }
  std::unique_ptr<Memory> allocate_shared(size_t bytes) const override { return host::allocate_shared(registry_, bytes); }
  size_t shared_granularity() const override { return host::shared_granularity(); }
  std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const override { return host::import_shared(registry_, fd, bytes); }
  std::unique_ptr<Memory> alias_shared(const Memory& memory) const override { return host::alias_shared(memory); }

  PointerInfo classify(const uint8_t* pointer) const override { return registry_->classify(pointer); }
  IpcHandle export_ipc(const uint8_t* base) const override { host::export_ipc(base); }
  std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const override { host::import_ipc(handle, bytes); }
  FilePart export_file(const uint8_t* base) const override { return plain_file_->part(base); }
  std::unique_ptr<Memory> import_file(const FilePart& part, size_t bytes) const override {
    return host::import_file(registry_, part, bytes);
  }
  PointerInfo piece(const uint8_t* pointer) const override { return piece_at(*registry_, pointer); }
  int32_t export_piece(const uint8_t* base) const override { return host::export_piece(*registry_, base); }
  std::unique_ptr<Assembly> assemble(size_t bytes) const override { return new_assembly(registry_, bytes); }
  void enable_peer(int32_t) const override {}  // one address space: nothing to enable
  bool can_access(int32_t) const override { return true; }
  int32_t ordinal_of(const Uuid&) const override { return -1; }  // no device has a number
  bool native_atomics(const Uuid&) const override { return true; }

  size_t multicast_granularity(uint32_t) const override { return host::shared_granularity(); }
  std::unique_ptr<MulticastObject> create_multicast(size_t bytes, uint32_t devices) const override {
    return host::create_multicast(bytes, devices);
  }
  std::unique_ptr<MulticastObject> import_multicast(int32_t fd, size_t bytes) const override { return host::import_multicast(fd, bytes); }

  std::unique_ptr<device::Stream> create_stream(bool) const override { return std::make_unique<Stream>(registry_); }
  std::unique_ptr<device::Stream> borrow_stream(uint64_t raw) const override { return std::make_unique<Stream>(*registry_, raw); }
  std::unique_ptr<device::Event> create_event(bool) const override { return std::make_unique<Event>(); }
  void make_current() const override {}  // it is current on every thread
  void synchronize() const override {
    registry_->drain();
    registry_->throw_if_failed();
  }

 private:
  std::shared_ptr<Registry> registry_;
  std::shared_ptr<PlainFile> plain_file_ = std::make_shared<PlainFile>();
  std::string name_ = cpu_name();
  std::string versions_ = compiler_and_system();
};

}  // namespace

uint32_t count() noexcept { return 1; }

std::shared_ptr<device::Device> open(int32_t ordinal) {
  if (ordinal < 0) {
    throw Error(ErrorKind::kInvalidArgument, "open: the ordinal is " + std::to_string(ordinal) + ", but must be at least 0");
  }
  return std::make_shared<Device>(ordinal);
}

}  // namespace symmetra::device::host
