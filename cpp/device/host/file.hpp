// Files of memory that other processes can map.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "cpp/device/device.hpp"

namespace symmetra::device::host {

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const noexcept { return fd_; }
  /// The descriptor, owned by the caller.
  int release() noexcept { return std::exchange(fd_, -1); }
  /// A new descriptor of this file, owned by the caller.
  int duplicate() const;

 private:
  int fd_;
};

/// An empty memory file without a path; `name` appears in a process's memory map.
Descriptor create_file(const char* name);
/// Sets the final size of a file. With F_SEAL_GROW among the `seals` the file cannot grow either.
void set_bytes(const Descriptor& file, size_t bytes);
void seal(const Descriptor& file, int seals);
/// Throws unless the first `bytes` of another process's file may be mapped. Accessing a mapping past the end of its
/// file raises SIGBUS, so the file must be long enough and sealed against shrinking.
void check_file(const Descriptor& file, uint64_t bytes);

/// Owns a shared mapping of a part of a file.
class Mapping {
 public:
  Mapping(const Descriptor& file, uint64_t offset, size_t bytes);
  Mapping(Mapping&& other) noexcept : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_) {}
  ~Mapping();
  Mapping& operator=(Mapping&&) = delete;

  uint8_t* address() const noexcept { return address_; }

 private:
  uint8_t* address_;
  size_t bytes_;
};

/// The file of all plain memory of a device, created at the first use: any number of allocations cost one descriptor.
/// Usable from any thread.
class PlainFile {
 public:
  /// Maps `bytes` of the file that no other allocation uses.
  uint8_t* allocate(size_t bytes);
  /// Unmaps memory of allocate, and returns it to the system. The place is reused: no process may still map it.
  void free(const uint8_t* address) noexcept;
  /// The part of the allocation that starts at `base`. Throws kInvalidArgument if there is none.
  FilePart part(const uint8_t* base) const;

 private:
  struct Piece {
    uint64_t offset;
    size_t bytes;  // whole pages
    Mapping mapping;
  };

  /// The lowest gap between allocations that is large enough.
  uint64_t find_room(size_t bytes) const;

  mutable std::mutex mutex_;
  Descriptor file_{-1};
  uint64_t file_bytes_ = 0;
  std::map<uint64_t, uint64_t> ends_;  // of each piece, by its offset
  std::map<const uint8_t*, Piece> pieces_;
};

}  // namespace symmetra::device::host
