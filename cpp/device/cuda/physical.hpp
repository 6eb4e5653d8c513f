// Physical memory, ranges of addresses, and mappings: the parts of memory that other ranks map.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "cpp/device/cuda/context.hpp"
#include "cpp/device/device.hpp"

namespace symmetra::device::cuda {

inline CUmemLocation location(const Context& context) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = context.ordinal;
  return location;
}

inline CUmemAllocationProp allocation(const Context& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = location(context);
  return properties;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int32_t fd) : fd_(fd) {}
  ~FileDescriptor() { close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int32_t get() const { return fd_; }

 private:
  int32_t fd_;
};

/// A reference to physical memory.
class Physical {
 public:
  /// `acquire` writes the handle and returns the driver's code.
  template <typename Acquire>
  Physical(const Context& context, Call call, Acquire acquire) : context_(context) {
    check(acquire(&handle_), context, call);
  }
  ~Physical() { context_.driver.cuMemRelease(handle_); }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  CUmemGenericAllocationHandle get() const { return handle_; }

  /// A new descriptor of the memory, owned by the caller. `bytes` is for messages.
  int32_t export_fd(size_t bytes) const {
    int fd = -1;
    check(context_.driver.cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), context_,
          {"cuMemExportToShareableHandle", bytes});
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }

 private:
  const Context& context_;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// A range of addresses.
class Reservation {
 public:
  Reservation(const Context& context, size_t bytes) : driver_(context.driver), bytes_(bytes) {
    check(driver_.cuMemAddressReserve(&start_, bytes, 0, 0, 0), context, {"cuMemAddressReserve", bytes});
  }
  ~Reservation() { driver_.cuMemAddressFree(start_, bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  CUdeviceptr start() const { return start_; }
  size_t bytes() const { return bytes_; }

 private:
  const Driver& driver_;
  size_t bytes_;
  CUdeviceptr start_ = 0;
};

/// Physical memory at addresses of a range, which the device may read and write.
class Mapping {
 public:
  Mapping(const Context& context, CUdeviceptr start, size_t bytes, const Physical& memory)
      : context_(context), start_(start), bytes_(bytes) {
    check(context.driver.cuMemMap(start, bytes, 0, memory.get(), 0), context, {"cuMemMap", bytes});
    const CUresult code = admit(context.ordinal);
    if (code != CUDA_SUCCESS) context.driver.cuMemUnmap(start, bytes);
    check(code, context, {"cuMemSetAccess", bytes});
  }
  ~Mapping() { context_.driver.cuMemUnmap(start_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// Lets a device of this process read and write too.
  CUresult admit(int32_t ordinal) const {
    CUmemAccessDesc access{};
    access.location = location(context_);
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return context_.driver.cuMemSetAccess(start_, bytes_, &access, 1);
  }

 private:
  const Context& context_;
  CUdeviceptr start_;
  size_t bytes_;
};

/// A reference to the physical memory that is mapped at an address of this process.
inline Physical retained(const Context& context, const uint8_t* address) {
  return Physical(context, {"cuMemRetainAllocationHandle"}, [&](CUmemGenericAllocationHandle* handle) {
    return context.driver.cuMemRetainAllocationHandle(handle, const_cast<uint8_t*>(address));
  });
}

/// A reference to the physical memory that another process exported as a descriptor.
inline Physical imported(const Context& context, int32_t fd, size_t bytes) {
  return Physical(context, {"cuMemImportFromShareableHandle", bytes}, [&](CUmemGenericAllocationHandle* handle) {
    void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    return context.driver.cuMemImportFromShareableHandle(handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
}

}  // namespace symmetra::device::cuda
