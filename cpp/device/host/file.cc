#include "cpp/device/host/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "cpp/device/host/error.hpp"
#include "cpp/device/host/memory.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace symmetra::device::host {
namespace {

#ifdef __SANITIZE_ADDRESS__
// AddressSanitizer does not track mappings: red zones mark the end of an allocation.
constexpr size_t kRedzoneBytes = 64;
void guard(const uint8_t* address, size_t bytes, size_t mapped_bytes) { ASAN_POISON_MEMORY_REGION(address + bytes, mapped_bytes - bytes); }
void unguard(const uint8_t* address, size_t mapped_bytes) { ASAN_UNPOISON_MEMORY_REGION(address, mapped_bytes); }
#else
constexpr size_t kRedzoneBytes = 0;
void guard(const uint8_t*, size_t, size_t) {}
void unguard(const uint8_t*, size_t) {}
#endif

}  // namespace

int Descriptor::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw_system("fcntl(F_DUPFD_CLOEXEC) of descriptor " + std::to_string(fd_), errno);
  return fd;
}

Descriptor create_file(const char* name) {
  // MFD_NOEXEC_SEAL is used if the kernel supports the flag: hardened systems require it.
  Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (file.get() < 0 && errno == EINVAL) file = Descriptor(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) throw_system(std::string("memfd_create of ") + name, errno);
  return file;
}

void set_bytes(const Descriptor& file, size_t bytes) {
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) throw_system("ftruncate to " + std::to_string(bytes) + " bytes", errno);
}

void seal(const Descriptor& file, int seals) {
  if (::fcntl(file.get(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) throw_system("fcntl(F_ADD_SEALS)", errno);
}

void check_file(const Descriptor& file, uint64_t bytes) {
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) throw_system("importing memory: fstat of descriptor " + std::to_string(file.get()), errno);
  if (!S_ISREG(about.st_mode)) {
    throw Error(ErrorKind::kInvalidArgument,
                "importing memory: the descriptor is not a memfd (mode " + std::to_string(about.st_mode) + ")");
  }
  if (about.st_size < 0 || static_cast<uint64_t>(about.st_size) < bytes) {
    throw Error(ErrorKind::kInvalidArgument, "importing memory: the file has " + std::to_string(about.st_size) + " bytes, but " +
                                                 std::to_string(bytes) + " were announced");
  }
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "importing memory: the file is not a memfd sealed against shrinking (seals " + std::to_string(seals) + ")");
  }
}

Mapping::Mapping(const Descriptor& file, uint64_t offset, size_t bytes) : address_(nullptr), bytes_(bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  if (address == MAP_FAILED) throw_system("mmap of " + std::to_string(bytes) + " shared bytes at " + std::to_string(offset), errno);
  address_ = static_cast<uint8_t*>(address);
}

Mapping::~Mapping() {
  if (address_ != nullptr) ::munmap(address_, bytes_);
}

uint8_t* PlainFile::allocate(size_t bytes) {
  const size_t page_bytes = shared_granularity();
  const size_t mapped_bytes = (bytes + kRedzoneBytes + page_bytes - 1) / page_bytes * page_bytes;
  const std::lock_guard lock(mutex_);
  if (file_.get() < 0) {
    Descriptor file = create_file("symmetra-plain");
    seal(file, F_SEAL_SHRINK);
    file_ = std::move(file);
  }
  const uint64_t offset = find_room(mapped_bytes);
  if (offset + mapped_bytes > file_bytes_) {
    set_bytes(file_, offset + mapped_bytes);
    file_bytes_ = offset + mapped_bytes;
  }
  Mapping mapping(file_, offset, mapped_bytes);
  uint8_t* const address = mapping.address();
  const auto end = ends_.emplace(offset, offset + mapped_bytes).first;
  try {
    pieces_.emplace(address, Piece{offset, mapped_bytes, std::move(mapping)});
  } catch (...) {
    ends_.erase(end);
    throw;
  }
  guard(address, bytes, mapped_bytes);
  return address;
}

void PlainFile::free(const uint8_t* address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(address);
  if (piece == pieces_.end()) return;
  const uint64_t offset = piece->second.offset;
  const size_t bytes = piece->second.bytes;
  unguard(address, bytes);
  pieces_.erase(piece);
  ends_.erase(offset);
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

FilePart PlainFile::part(const uint8_t* base) const {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(base);
  if (piece == pieces_.end()) {
    throw Error(ErrorKind::kInvalidArgument,
                "export_file: no allocation starts at address " + std::to_string(reinterpret_cast<uintptr_t>(base)));
  }
  return FilePart{piece->second.offset, file_.duplicate(), 0};
}

uint64_t PlainFile::find_room(size_t bytes) const {
  uint64_t start = 0;
  for (const auto& [offset, end] : ends_) {
    if (offset - start >= bytes) break;
    start = end;
  }
  return start;
}

}  // namespace symmetra::device::host
