#include "cpp/device/host/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "cpp/device/host/error.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace symmetra::device::host {
namespace {

constexpr std::align_val_t kAlignment{64};

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// Owns an aligned block of the heap, of exactly the bytes asked for: sanitizers see an overrun.
class Block {
 public:
  explicit Block(size_t bytes) : address_(static_cast<uint8_t*>(::operator new(bytes, kAlignment, std::nothrow))) {
    if (!address_) throw_system("allocating " + std::to_string(bytes) + " bytes", ENOMEM);
  }
  Block(Block&& other) noexcept : address_(std::exchange(other.address_, nullptr)) {}
  ~Block() { ::operator delete(address_, kAlignment); }
  Block& operator=(Block&&) = delete;

  uint8_t* address() const noexcept { return address_; }

 private:
  uint8_t* address_;
};

/// Owns a shared mapping of a file.
class Mapping {
 public:
  Mapping(const Descriptor& file, size_t bytes)
      : address_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0)), bytes_(bytes) {
    if (address_ == MAP_FAILED) throw_system("mmap of " + std::to_string(bytes) + " shared bytes", errno);
  }
  Mapping(Mapping&& other) noexcept : address_(std::exchange(other.address_, MAP_FAILED)), bytes_(other.bytes_) {}
  ~Mapping() {
    if (address_ != MAP_FAILED) ::munmap(address_, bytes_);
  }
  Mapping& operator=(Mapping&&) = delete;

  uint8_t* address() const noexcept { return static_cast<uint8_t*>(address_); }

 private:
  void* address_;
  size_t bytes_;
};

/// Memory of somebody else, who frees it after us.
class Borrowed {
 public:
  explicit Borrowed(uint8_t* address) noexcept : address_(address) {}
  uint8_t* address() const noexcept { return address_; }

 private:
  uint8_t* address_;
};

/// The allocation's entry for classify, there while the memory is.
class Range {
 public:
  Range(std::shared_ptr<Registry> registry, const PointerInfo& info) : registry_(std::move(registry)), base_(info.base) {
    registry_->add_range(info);
  }
  ~Range() { registry_->remove_range(base_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::shared_ptr<Registry> registry_;
  uint64_t base_;
};

[[noreturn]] void refuse_export(const char* what) {
  throw Error(ErrorKind::kUnsupported,
              std::string("export_fd: ") + what + " has no file descriptor; only memory from allocate_shared has one");
}

/// Memory that is freed or unmapped with its `Owner`, once the device's streams are drained.
template <typename Owner>
class Allocation : public Memory {
 public:
  Allocation(std::shared_ptr<Registry> registry, Owner owner, size_t bytes, uint32_t kind)
      : registry_(std::move(registry)), owner_(std::move(owner)), bytes_(bytes), range_(registry_, info(kind)) {}
  ~Allocation() override { registry_->drain(); }

  uint8_t* address() const noexcept override { return owner_.address(); }
  size_t bytes() const noexcept override { return bytes_; }
  int32_t export_fd() const override { refuse_export("this memory"); }

 private:
  PointerInfo info(uint32_t kind) const noexcept {
    const int32_t device = kind == kPointerPinned ? -1 : registry_->ordinal();
    return PointerInfo{kind, device, reinterpret_cast<uint64_t>(owner_.address()), bytes_};
  }

  std::shared_ptr<Registry> registry_;
  Owner owner_;
  size_t bytes_;
  Range range_;  // goes before the owner: the address may be reused at once
};

/// Memory of allocate_shared: keeps its file for export.
class Shared final : public Allocation<Mapping> {
 public:
  Shared(const std::shared_ptr<Registry>& registry, Descriptor file, size_t bytes)
      : Allocation(registry, Mapping(file, bytes), bytes, kPointerVmm), file_(std::move(file)) {}

  int32_t export_fd() const override {
    const int fd = ::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) throw_system("export_fd: fcntl(F_DUPFD_CLOEXEC)", errno);
    return fd;
  }

 private:
  Descriptor file_;
};

/// The same addresses, owned by another object.
class Alias final : public Memory {
 public:
  Alias(uint8_t* address, size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  uint8_t* address() const noexcept override { return address_; }
  size_t bytes() const noexcept override { return bytes_; }
  int32_t export_fd() const override { refuse_export("an alias"); }

 private:
  uint8_t* address_;
  size_t bytes_;
};

void check_bytes(const char* doing, size_t bytes) {
  if (bytes == 0) throw Error(ErrorKind::kInvalidArgument, std::string(doing) + ": bytes is 0, but must be at least 1");
  if (bytes > physical_bytes()) {
    throw Error(ErrorKind::kOutOfMemory,
                std::string(doing) + ": " + std::to_string(bytes) + " bytes asked for, the machine has " + std::to_string(physical_bytes()),
                ENOMEM);
  }
}

Descriptor create_file() {
  // Refusing execution is asked for where the kernel knows the flag: hardened systems insist on it.
  Descriptor file(::memfd_create("symmetra", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (file.get() >= 0 || errno != EINVAL) return file;
  return Descriptor(::memfd_create("symmetra", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

/// A mapping past the end of its file ends the process by SIGBUS at the first touch, so
/// the file must be long enough and must not be able to shrink.
void check_file(const Descriptor& file, size_t bytes) {
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) throw_system("import_shared: fstat of descriptor " + std::to_string(file.get()), errno);
  if (!S_ISREG(about.st_mode)) {
    throw Error(ErrorKind::kInvalidArgument, "import_shared: the descriptor is not a memfd (mode " + std::to_string(about.st_mode) + ")");
  }
  if (about.st_size < 0 || static_cast<uint64_t>(about.st_size) < bytes) {
    throw Error(ErrorKind::kInvalidArgument, "import_shared: the file has " + std::to_string(about.st_size) + " bytes, but " +
                                                 std::to_string(bytes) + " were announced");
  }
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "import_shared: the file is not a memfd sealed against shrinking (seals " + std::to_string(seals) + ")");
  }
}

}  // namespace

size_t physical_bytes() noexcept { return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t shared_granularity() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

std::unique_ptr<Memory> allocate(const std::shared_ptr<Registry>& registry, size_t bytes) {
  check_bytes("allocate", bytes);
  // Not kPointerDevice, which promises a legacy IPC export.
  return std::make_unique<Allocation<Block>>(registry, Block(bytes), bytes, kPointerUnknown);
}

std::unique_ptr<Memory> pin(const std::shared_ptr<Registry>& registry, uint8_t* address, size_t bytes) {
  check_bytes("pin", bytes);
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (!address || number % shared_granularity() != 0 || bytes % shared_granularity() != 0) {
    throw Error(ErrorKind::kInvalidArgument, "pin: " + std::to_string(bytes) + " bytes at address " + std::to_string(number) +
                                                 ", but both must be multiples of the page size " + std::to_string(shared_granularity()));
  }
  return std::make_unique<Allocation<Borrowed>>(registry, Borrowed(address), bytes, kPointerPinned);
}

std::unique_ptr<Memory> allocate_shared(const std::shared_ptr<Registry>& registry, size_t bytes) {
  check_bytes("allocate_shared", bytes);
  if (bytes % shared_granularity() != 0) {
    throw Error(ErrorKind::kInvalidArgument, "allocate_shared: bytes is " + std::to_string(bytes) + ", but must be a multiple of " +
                                                 std::to_string(shared_granularity()));
  }
  Descriptor file = create_file();
  if (file.get() < 0) throw_system("allocate_shared: memfd_create", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw_system("allocate_shared: ftruncate to " + std::to_string(bytes) + " bytes", errno);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_system("allocate_shared: fcntl(F_ADD_SEALS)", errno);
  }
  return std::make_unique<Shared>(registry, std::move(file), bytes);
}

std::unique_ptr<Memory> import_shared(const std::shared_ptr<Registry>& registry, int32_t fd, size_t bytes) {
  const Descriptor file(fd);
  check_bytes("import_shared", bytes);
  check_file(file, bytes);
  return std::make_unique<Allocation<Mapping>>(registry, Mapping(file, bytes), bytes, kPointerVmm);
}

std::unique_ptr<Memory> alias_shared(const Memory& memory) { return std::make_unique<Alias>(memory.address(), memory.bytes()); }

}  // namespace symmetra::device::host
