#include "cpp/device/hip/memory.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "cpp/device/hip/drain.hpp"
#include "cpp/device/hip/error.hpp"
#include "cpp/device/hip/ipc.hpp"
#include "cpp/device/registry.hpp"

namespace symmetra::device::hip {
namespace {

class Plain final : public LocalMemory {
 public:
  Plain(const Context& context, size_t bytes) : context_(context), bytes_(bytes) {
    const Cold cold(context_);
    check(context_.hip.hipMalloc(&address_, bytes), context_, {"hipMalloc", bytes});
  }
  ~Plain() override {
    const Cold cold(context_);
    settle(context_, context_.hip.hipFree(address_));
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

/// Host memory made known to the device runtime, for all devices. Expects the context to be current.
class Registered {
 public:
  Registered(const Context& context, const Range& range) : context_(context), address_(range.first) {
    const unsigned int flags = hipHostRegisterPortable | hipHostRegisterMapped;
    check(context.hip.hipHostRegister(address_, range.second, flags), context, {"hipHostRegister", range.second});
  }
  ~Registered() {
    const Cold cold(context_);
    settle(context_, context_.hip.hipHostUnregister(address_));
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const Context& context_;
  uint8_t* address_;
};

class Pinned final : public LocalMemory {
 public:
  Pinned(const Context& context, const Range& range) : range_(range), registered_(range, context, range), drain_(context) {}
  uint8_t* address() const noexcept override { return range_.first; }
  size_t bytes() const noexcept override { return range_.second; }

 private:
  Range range_;
  Use<Range, Registered> registered_;
  Drain drain_;
};

void require_pages(const uint8_t* address, size_t bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (bytes != 0 && bytes % page_bytes == 0 && start % page_bytes == 0) return;
  throw Error(ErrorKind::kInvalidArgument, "pin of " + std::to_string(bytes) + " bytes at " + std::to_string(start) +
                                               ", but both must be multiples of " + std::to_string(page_bytes) + " and the bytes not 0");
}

/// Where the device has other addresses for host memory, it cannot share our structures.
void require_same_address(const Context& context, uint8_t* address) {
  void* seen = nullptr;
  check(context.hip.hipHostGetDevicePointer(&seen, address, 0), context, {"hipHostGetDevicePointer"});
  if (seen == address) return;
  throw Error(ErrorKind::kUnsupported,
              "device " + std::to_string(context.ordinal) + " addresses host memory at other addresses than the host");
}

}  // namespace

int32_t LocalMemory::export_fd() const { throw Error(ErrorKind::kInvalidArgument, "export_fd of memory that is not from allocate_shared"); }

std::unique_ptr<Memory> allocate(const Context& context, size_t bytes) {
  if (bytes == 0) throw Error(ErrorKind::kInvalidArgument, "an allocation of 0 bytes, but it must have at least 1");
  return std::make_unique<Plain>(context, bytes);
}

std::unique_ptr<Memory> pin(const Context& context, uint8_t* address, size_t bytes) {
  require_pages(address, bytes);
  const Cold cold(context);
  auto pinned = std::make_unique<Pinned>(context, Range(address, bytes));
  require_same_address(context, address);
  return pinned;
}

PointerInfo classify(const Context& context, const uint8_t* pointer) {
  const Cold cold(context);
  void* const address = const_cast<uint8_t*>(pointer);
  hipPointerAttribute_t attributes{};
  // Older runtimes refuse pointers they do not know, newer ones say so.
  if (settle(context, context.hip.hipPointerGetAttributes(&attributes, address)) != hipSuccess) return {kPointerUnknown, -1, 0, 0};
  hipDeviceptr_t base = nullptr;
  size_t bytes = 0;
  const bool found = settle(context, context.hip.hipMemGetAddressRange(&base, &bytes, address)) == hipSuccess;
  const uint64_t start = found ? reinterpret_cast<uint64_t>(base) : 0;
  if (attributes.isManaged != 0) return {kPointerManaged, attributes.device, start, bytes};
  if (memory_type(attributes) == hipMemoryTypeHost) return {kPointerPinned, -1, start, bytes};
  if (memory_type(attributes) != hipMemoryTypeDevice || !found) return {kPointerUnknown, -1, 0, 0};
  const bool exportable = is_exportable(context, reinterpret_cast<const uint8_t*>(start));
  return {exportable ? kPointerDevice : kPointerVmm, attributes.device, start, bytes};
}

}  // namespace symmetra::device::hip
