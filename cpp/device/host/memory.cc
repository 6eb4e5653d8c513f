#include "cpp/device/host/memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "cpp/device/host/bell.hpp"
#include "cpp/device/host/error.hpp"

namespace symmetra::device::host {
namespace {

/// Owns an allocation in the device's file.
class Block {
 public:
  Block(std::shared_ptr<PlainFile> file, size_t bytes) : file_(std::move(file)), address_(file_->allocate(bytes)) {}
  Block(Block&& other) noexcept : file_(std::move(other.file_)), address_(std::exchange(other.address_, nullptr)) {}
  ~Block() {
    if (address_ != nullptr) file_->free(address_);
  }
  Block& operator=(Block&&) = delete;

  uint8_t* address() const noexcept { return address_; }

 private:
  std::shared_ptr<PlainFile> file_;
  uint8_t* address_;
};

/// Memory of another owner, who frees it later.
class Borrowed {
 public:
  explicit Borrowed(uint8_t* address) noexcept : address_(address) {}
  uint8_t* address() const noexcept { return address_; }

 private:
  uint8_t* address_;
};

/// The allocation's entry for classify, which lives as long as the memory.
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

/// Memory that is freed or unmapped with its `Owner`, after the device's streams are drained.
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
  Range range_;  // destroyed before the owner: the address may be reused at once
};

/// Owns a mapping of a file of allocate_shared: a page with the bell, followed by the memory.
class Belled {
 public:
  Belled(const Descriptor& file, size_t bytes)
      : mapping_(std::make_unique<Mapping>(file, 0, shared_granularity() + bytes)),
        hung_(std::make_unique<Hung>(reinterpret_cast<Bell*>(mapping_->address()), address(), bytes)) {}
  uint8_t* address() const noexcept { return mapping_->address() + shared_granularity(); }

 private:
  std::unique_ptr<Mapping> mapping_;
  std::unique_ptr<Hung> hung_;  // destroyed before the mapping
};

/// Memory of allocate_shared, with its file for export.
class Shared final : public Allocation<Belled> {
 public:
  Shared(const std::shared_ptr<Registry>& registry, Descriptor file, size_t bytes)
      : Allocation(registry, Belled(file, bytes), bytes, kPointerVmm), file_(std::move(file)) {
    registry->add_file(reinterpret_cast<uint64_t>(address()), file_.get());
  }

  int32_t export_fd() const override { return file_.duplicate(); }

 private:
  Descriptor file_;
};

/// Addresses that another object owns.
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

}  // namespace

size_t physical_bytes() noexcept { return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

size_t shared_granularity() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

std::unique_ptr<Memory> allocate(const std::shared_ptr<Registry>& registry, const std::shared_ptr<PlainFile>& file, size_t bytes) {
  check_bytes("allocate", bytes);
  return std::make_unique<Allocation<Block>>(registry, Block(file, bytes), bytes, kPointerFile);
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
  Descriptor file = create_file("symmetra");
  set_bytes(file, shared_granularity() + bytes);
  seal(file, F_SEAL_SHRINK | F_SEAL_GROW);
  return std::make_unique<Shared>(registry, std::move(file), bytes);
}

std::unique_ptr<Memory> import_shared(const std::shared_ptr<Registry>& registry, int32_t fd, size_t bytes) {
  const Descriptor file(fd);
  check_bytes("import_shared", bytes);
  check_file(file, shared_granularity() + bytes);
  return std::make_unique<Allocation<Belled>>(registry, Belled(file, bytes), bytes, kPointerVmm);
}

std::unique_ptr<Memory> import_file(const std::shared_ptr<Registry>& registry, const FilePart& part, size_t bytes) {
  const Descriptor file(part.fd);
  check_bytes("import_file", bytes);
  check_file(file, part.offset > ~uint64_t{0} - bytes ? ~uint64_t{0} : part.offset + bytes);
  return std::make_unique<Allocation<Mapping>>(registry, Mapping(file, part.offset, bytes), bytes, kPointerVmm);
}

std::unique_ptr<Memory> alias_shared(const Memory& memory) { return std::make_unique<Alias>(memory.address(), memory.bytes()); }

}  // namespace symmetra::device::host
