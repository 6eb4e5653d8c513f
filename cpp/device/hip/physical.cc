#include "cpp/device/hip/physical.hpp"

#include <fcntl.h>

namespace symmetra::device::hip {
namespace {

hipMemLocation location(const Context& context) {
  hipMemLocation location{};
  location.type = hipMemLocationTypeDevice;
  location.id = context.ordinal;
  return location;
}

hipMemAllocationProp allocation(const Context& context) {
  hipMemAllocationProp properties{};
  properties.type = kUncached;
  ask_for_descriptor(properties);
  properties.location = location(context);
  return properties;
}

/// A reference to physical memory.
class Handle {
 public:
  /// `acquire` writes the handle and returns the driver's code.
  template <typename Acquire>
  Handle(const Context& context, Call call, Acquire acquire) : hip_(context.api) {
    check(acquire(&handle_), context, call);
  }
  ~Handle() { static_cast<void>(hip_.MemRelease(handle_)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hipMemGenericAllocationHandle_t get() const { return handle_; }

 private:
  const Runtime& hip_;
  hipMemGenericAllocationHandle_t handle_ = nullptr;
};

/// A range of addresses.
class Reservation {
 public:
  Reservation(const Context& context, size_t bytes) : hip_(context.api), bytes_(bytes) {
    check(hip_.MemAddressReserve(&start_, bytes, 0, nullptr, 0), context, {"MemAddressReserve", bytes});
  }
  ~Reservation() { static_cast<void>(hip_.MemAddressFree(start_, bytes_)); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  void* start() const { return start_; }
  size_t bytes() const { return bytes_; }

 private:
  const Runtime& hip_;
  size_t bytes_;
  void* start_ = nullptr;
};

/// Physical memory at a range of addresses.
class Mapping {
 public:
  Mapping(const Context& context, const Reservation& range, const Handle& memory) : context_(context), range_(range) {
    check(context.api.MemMap(range.start(), range.bytes(), 0, memory.get(), 0), context, {"MemMap", range.bytes()});
  }
  ~Mapping() { static_cast<void>(context_.api.MemUnmap(range_.start(), range_.bytes())); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void allow_access() const {
    hipMemAccessDesc access{};
    access.location = location(context_);
    access.flags = hipMemAccessFlagsProtReadWrite;
    check(context_.api.MemSetAccess(range_.start(), range_.bytes(), &access, 1), context_, {"MemSetAccess", range_.bytes()});
  }

 private:
  const Context& context_;
  const Reservation& range_;
};

class Physical final : public SharedMemory {
 public:
  /// Expects `context` to be current.
  template <typename Acquire>
  Physical(const Context& context, size_t bytes, Call call, Acquire acquire)
      : context_(context), handle_(context, call, acquire), range_(context, bytes), mapping_(context, range_, handle_), drain_(context) {
    mapping_.allow_access();
  }
  uint8_t* address() const noexcept override { return static_cast<uint8_t*>(range_.start()); }
  size_t bytes() const noexcept override { return range_.bytes(); }

  int32_t export_fd() const override {
    const Cold cold(context_);
    int fd = -1;
    check(context_.api.MemExportToShareableHandle(&fd, handle_.get(), hipMemHandleTypePosixFileDescriptor, 0), context_,
          {"MemExportToShareableHandle", bytes()});
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }

  std::unique_ptr<Memory> alias(const Context& context) const override {
    const Cold cold(context);
    return std::make_unique<Physical>(
        context, bytes(), Call{"MemRetainAllocationHandle", bytes()},
        [&](hipMemGenericAllocationHandle_t* handle) { return context.api.MemRetainAllocationHandle(handle, address()); });
  }

 private:
  const Context& context_;
  Handle handle_;
  Reservation range_;
  Mapping mapping_;
  Drain<Context> drain_;  ///< unmapping does not wait for work that still uses the addresses, which would then fault
};

}  // namespace

size_t physical_granularity(const Context& context) {
  const Cold cold(context);
  const hipMemAllocationProp properties = allocation(context);
  size_t granularity = 0;
  check(context.api.MemGetAllocationGranularity(&granularity, &properties, hipMemAllocationGranularityRecommended), context,
        {"MemGetAllocationGranularity"});
  return granularity;
}

std::unique_ptr<Memory> allocate_physical(const Context& context, size_t bytes) {
  const Cold cold(context);
  const hipMemAllocationProp properties = allocation(context);
  return std::make_unique<Physical>(context, bytes, Call{"MemCreate", bytes}, [&](hipMemGenericAllocationHandle_t* handle) {
    return context.api.MemCreate(handle, bytes, &properties, 0);
  });
}

std::unique_ptr<Memory> import_physical(const Context& context, int32_t fd, size_t bytes) {
  const Cold cold(context);
  return std::make_unique<Physical>(
      context, bytes, Call{"MemImportFromShareableHandle", bytes}, [&](hipMemGenericAllocationHandle_t* handle) {
        void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
        return context.api.MemImportFromShareableHandle(handle, shareable, hipMemHandleTypePosixFileDescriptor);
      });
}

}  // namespace symmetra::device::hip
