// Memory of one process: the plain allocator, and host memory that the device addresses.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cpp/device/device.hpp"
#include "cpp/device/gpu/drain.hpp"
#include "cpp/device/registry.hpp"

namespace symmetra::device::gpu {

/// Memory whose export_fd always throws: all memory except allocate_shared's.
class LocalMemory : public Memory {
 public:
  int32_t export_fd() const final { throw Error(ErrorKind::kInvalidArgument, "export_fd of memory that is not from allocate_shared"); }
};

template <typename Context>
class Plain final : public LocalMemory {
 public:
  Plain(const Context& context, size_t bytes) : context_(context), bytes_(bytes) {
    const Cold cold(context_);
    check(context_.api.Malloc(&address_, bytes), context_, {"Malloc", bytes});
  }
  ~Plain() override {
    const Cold cold(context_);
    settle(context_.api, context_.api.Free(address_));
  }
  uint8_t* address() const noexcept override { return static_cast<uint8_t*>(address_); }
  size_t bytes() const noexcept override { return bytes_; }

 private:
  const Context& context_;
  size_t bytes_;
  void* address_ = nullptr;
};

/// A range of host addresses.
using Range = std::pair<uint8_t*, size_t>;

/// Host memory registered with the runtime, for all devices. Expects the context to be current.
template <typename Context>
class Registered {
 public:
  Registered(const Context& context, const Range& range) : context_(context), address_(range.first) {
    const unsigned int flags = Context::Api::HostRegisterPortable | Context::Api::HostRegisterMapped;
    check(context.api.HostRegister(address_, range.second, flags), context, {"HostRegister", range.second});
  }
  ~Registered() {
    const Cold cold(context_);
    settle(context_.api, context_.api.HostUnregister(address_));
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Context& context_;
  uint8_t* address_;
};

template <typename Context>
class Pinned final : public LocalMemory {
 public:
  Pinned(const Context& context, const Range& range) : range_(range), registered_(range, context, range), drain_(context) {}
  uint8_t* address() const noexcept override { return range_.first; }
  size_t bytes() const noexcept override { return range_.second; }

 private:
  Range range_;
  Use<Range, Registered<Context>> registered_;
  Drain<Context> drain_;
};

inline void require_pages(const uint8_t* address, size_t bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (bytes != 0 && bytes % page_bytes == 0 && start % page_bytes == 0) return;
  throw Error(ErrorKind::kInvalidArgument, "pin of " + std::to_string(bytes) + " bytes at " + std::to_string(start) +
                                               ", but both must be multiples of " + std::to_string(page_bytes) + " and the bytes not 0");
}

/// Throws if the device addresses host memory at other addresses: it cannot share the library's structures.
template <typename Context>
void require_same_address(const Context& context, uint8_t* address) {
  void* seen = nullptr;
  check(context.api.HostGetDevicePointer(&seen, address, 0), context, {"HostGetDevicePointer"});
  if (seen == address) return;
  throw Error(ErrorKind::kUnsupported,
              "device " + std::to_string(context.ordinal) + " addresses host memory at other addresses than the host");
}

template <typename Context>
std::unique_ptr<Memory> allocate(const Context& context, size_t bytes) {
  if (bytes == 0) throw Error(ErrorKind::kInvalidArgument, "an allocation of 0 bytes, but it must have at least 1");
  return std::make_unique<Plain<Context>>(context, bytes);
}

template <typename Context>
std::unique_ptr<Memory> pin(const Context& context, uint8_t* address, size_t bytes) {
  require_pages(address, bytes);
  const Cold cold(context);
  auto pinned = std::make_unique<Pinned<Context>>(context, Range(address, bytes));
  require_same_address(context, address);
  return pinned;
}

}  // namespace symmetra::device::gpu
