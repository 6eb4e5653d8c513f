// The files behind memory that other processes can map.
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
  /// A new descriptor of the same file, owned by the caller.
  int duplicate() const;

 private:
  int fd_;
};

/// Memory that is a file of no bytes and no path; `name` is for people who read the map of a process.
Descriptor create_file(const char* name);
/// Makes a file that long for good; with F_SEAL_GROW among the `seals` it grows no more either.
void set_bytes(const Descriptor& file, size_t bytes);
void seal(const Descriptor& file, int seals);
/// Throws unless the first `bytes` of a file of another process may be mapped: a mapping past the end of its file
/// ends the process by SIGBUS at the first touch, so the file must be long enough and must not be able to shrink.
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

/// The file that all plain memory of a device lies in, made when it is first used: however many allocations there are,
/// they cost one descriptor. Used from any thread.
class PlainFile {
 public:
  /// Maps `bytes` that nobody else has.
  uint8_t* allocate(size_t bytes);
  /// Unmaps what allocate mapped, and returns it to the system. Its place is handed out again: nobody else may have it mapped.
  void free(const uint8_t* address) noexcept;
  /// The part of the allocation that starts at `base`. Throws kInvalidArgument where none does.
  FilePart part(const uint8_t* base) const;

 private:
  struct Piece {
    uint64_t offset;
    size_t bytes;  // whole pages
    Mapping mapping;
  };

  /// The lowest gap between the pieces that has room.
  uint64_t find_room(size_t bytes) const;

  mutable std::mutex mutex_;
  Descriptor file_{-1};
  uint64_t file_bytes_ = 0;
  std::map<uint64_t, uint64_t> ends_;  // of each piece, by its offset
  std::map<const uint8_t*, Piece> pieces_;
};

}  // namespace symmetra::device::host
