// Checks of the GPU tests, and a device for looking at memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cpp/device/cuda/device.hpp"

namespace symmetra::test {

using namespace symmetra::device;

inline std::atomic<int> checks{0};
inline std::atomic<int> failures{0};

inline void check_at(bool holds, const char* text, int line) {
  checks += 1;
  if (holds) return;
  failures += 1;
  std::printf("  line %d: %s\n", line, text);
}
#define CHECK(condition) symmetra::test::check_at((condition), #condition, __LINE__)

/// The message of the last error that throws() caught.
inline std::string thrown_message;
/// Whether `work` throws an error of this kind.
inline bool throws(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    thrown_message = error.what();
    if (error.kind() != kind) std::printf("  threw kind %u: %s\n", static_cast<unsigned>(error.kind()), error.what());
    return error.kind() == kind;
  }
  return false;
}

inline bool says(const char* words) { return thrown_message.find(words) != std::string::npos; }

/// Polls a condition that another thread makes true.
inline bool within_5_s(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 5000; ++tries) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

constexpr size_t kHostBytes = 65536;

/// Pages that every device may write.
class HostPages {
 public:
  HostPages() : address_(mmap(nullptr, kHostBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (address_ == MAP_FAILED) std::abort();
  }
  ~HostPages() { munmap(address_, kHostBytes); }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  uint8_t* address() const { return static_cast<uint8_t*>(address_); }

 private:
  void* address_;
};

/// A device with a stream and a host buffer to look at its memory through.
struct Bench {
  explicit Bench(int32_t ordinal)
      : device(cuda::open(ordinal)), stream(device->create_stream()), pinned(device->pin(pages.address(), kHostBytes)) {}

  bool fill(uint8_t* address, uint8_t value, size_t bytes) const {
    if (stream->fill(address, value, bytes) != 0) return false;
    stream->synchronize();
    return true;
  }
  /// Whether the memory (at most kHostBytes of it) holds `value` everywhere.
  bool holds(const uint8_t* address, uint8_t value, size_t bytes) const {
    std::memset(pages.address(), static_cast<uint8_t>(~value), kHostBytes);
    if (stream->copy(pages.address(), address, bytes) != 0) return false;
    stream->synchronize();
    for (size_t i = 0; i < bytes; ++i) {
      if (pages.address()[i] != value) return false;
    }
    return true;
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  HostPages pages;
  std::unique_ptr<Memory> pinned;
};

}  // namespace symmetra::test
