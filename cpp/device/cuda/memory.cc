#include "cpp/device/cuda/memory.hpp"

#include <unistd.h>

#include <iterator>
#include <string>
#include <utility>

#include "cpp/device/cuda/drain.hpp"
#include "cpp/device/cuda/error.hpp"
#include "cpp/device/registry.hpp"

namespace symmetra::device::cuda {
namespace {

class Plain final : public LocalMemory {
 public:
  Plain(const Context& context, size_t bytes) : context_(context), bytes_(bytes) {
    const Cold cold(context_);
    check(cudaMalloc(&address_, bytes), context_, {"cudaMalloc", bytes});
  }
  ~Plain() override {
    const Cold cold(context_);
    settle(cudaFree(address_));
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
    const unsigned int flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    check(cudaHostRegister(address_, range.second, flags), context, {"cudaHostRegister", range.second});
  }
  ~Registered() {
    const Cold cold(context_);
    settle(cudaHostUnregister(address_));
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
  check(cudaHostGetDevicePointer(&seen, address, 0), context, {"cudaHostGetDevicePointer"});
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
  // The driver writes booleans of one byte or four: zeroed words read right either way.
  uint32_t memory_type = 0;
  uint32_t managed = 0;
  uint32_t legacy_ipc = 0;
  int32_t ordinal = -1;
  CUmemoryPool pool = nullptr;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* answers[] = {&memory_type, &managed, &ordinal, &legacy_ipc, &pool, &base, &bytes};
  static_assert(std::size(asked) == std::size(answers));

  const Cold cold(context);
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pointer);
  check(context.driver.cuPointerGetAttributes(std::size(asked), asked, answers, address), context, {"cuPointerGetAttributes"});
  if (managed != 0) return {kPointerManaged, ordinal, base, bytes};
  if (memory_type == CU_MEMORYTYPE_HOST) return {kPointerPinned, -1, base, bytes};
  if (memory_type != CU_MEMORYTYPE_DEVICE) return {kPointerUnknown, -1, 0, 0};
  if (pool != nullptr) return {kPointerPool, ordinal, base, bytes};
  return {legacy_ipc != 0 ? kPointerDevice : kPointerVmm, ordinal, base, bytes};
}

}  // namespace symmetra::device::cuda
