// A file descriptor with one owner.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace symmetra::device::hip {

class FileDescriptor {
 public:
  explicit FileDescriptor(int32_t fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int32_t get() const { return fd_; }
  int32_t release() { return std::exchange(fd_, -1); }

 private:
  int32_t fd_;
};

}  // namespace symmetra::device::hip
