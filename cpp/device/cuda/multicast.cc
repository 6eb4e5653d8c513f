#include "cpp/device/cuda/multicast.hpp"

#ifdef SYMMETRA_MULTICAST

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::cuda {
namespace {

/// The driver's functions. Members have the names of the functions.
struct Functions {
  decltype(&::cuMulticastCreate) cuMulticastCreate;
  decltype(&::cuMulticastAddDevice) cuMulticastAddDevice;
  decltype(&::cuMulticastBindAddr) cuMulticastBindAddr;
  decltype(&::cuMulticastUnbind) cuMulticastUnbind;
  decltype(&::cuMulticastGetGranularity) cuMulticastGetGranularity;
};

// The first release with these functions.
constexpr unsigned int kRelease = 12010;

const Functions& functions() {
  static const Functions found = [] {
    Functions table{};
    load(table.cuMulticastCreate, "cuMulticastCreate", kRelease);
    load(table.cuMulticastAddDevice, "cuMulticastAddDevice", kRelease);
    load(table.cuMulticastBindAddr, "cuMulticastBindAddr", kRelease);
    load(table.cuMulticastUnbind, "cuMulticastUnbind", kRelease);
    load(table.cuMulticastGetGranularity, "cuMulticastGetGranularity", kRelease);
    return table;
  }();
  return found;
}

CUmulticastObjectProp properties(size_t bytes, uint32_t devices) {
  CUmulticastObjectProp wanted{};
  wanted.numDevices = devices;
  wanted.size = bytes;
  wanted.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wanted;
}

/// One rank's reference to an object, and the steps that the rank has made.
class Object final : public MulticastObject {
 public:
  Object(const Context& context, CUmemGenericAllocationHandle handle, size_t bytes) : context_(context), handle_(handle), bytes_(bytes) {}
  ~Object() override {
    const Cold cold(context_);
    const Driver& driver = context_.driver;
    if (mapped_) driver.cuMemUnmap(start_, bytes_);
    if (start_ != 0) driver.cuMemAddressFree(start_, bytes_);
    if (bound_) functions().cuMulticastUnbind(handle_, context_.ordinal, 0, bytes_);
    driver.cuMemRelease(handle_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  int32_t export_fd() const override {
    const Cold cold(context_);
    int fd = -1;
    check(context_.driver.cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), context_,
          {"cuMemExportToShareableHandle", bytes_});
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }
  void add() override {
    const Cold cold(context_);
    check(functions().cuMulticastAddDevice(handle_, context_.ordinal), context_, {"cuMulticastAddDevice"});
  }
  void bind(const Memory& memory) override {
    if (memory.bytes() != bytes_) {
      throw Error(ErrorKind::kInvalidArgument,
                  "bind: " + std::to_string(memory.bytes()) + " bytes of memory to an object of " + std::to_string(bytes_));
    }
    const Cold cold(context_);
    const auto address = reinterpret_cast<CUdeviceptr>(memory.address());
    check(functions().cuMulticastBindAddr(handle_, 0, address, bytes_, 0), context_, {"cuMulticastBindAddr", bytes_});
    bound_ = true;
  }
  void map() override {
    const Cold cold(context_);
    const Driver& driver = context_.driver;
    check(driver.cuMemAddressReserve(&start_, bytes_, multicast_unit(context_, 2), 0, 0), context_, {"cuMemAddressReserve", bytes_});
    check(driver.cuMemMap(start_, bytes_, 0, handle_, 0), context_, {"cuMemMap", bytes_});
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = context_.ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(driver.cuMemSetAccess(start_, bytes_, &access, 1), context_, {"cuMemSetAccess", bytes_});
  }
  uint8_t* address() const noexcept override { return mapped_ ? reinterpret_cast<uint8_t*>(start_) : nullptr; }

 private:
  const Context& context_;
  CUmemGenericAllocationHandle handle_;
  size_t bytes_;
  CUdeviceptr start_ = 0;
  bool bound_ = false;
  bool mapped_ = false;
};

}  // namespace

size_t multicast_unit(const Context& context, uint32_t devices) {
  const Cold cold(context);
  int supported = 0;
  check(context.driver.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, context.ordinal), context,
        {"cuDeviceGetAttribute"});
  if (supported == 0) throw Error(ErrorKind::kUnsupported, "CUDA device " + std::to_string(context.ordinal) + " has no multicast");
  // The driver requires a size, which does not change the answer.
  const CUmulticastObjectProp wanted = properties(size_t{2} << 20, devices);
  size_t unit = 0;
  check(functions().cuMulticastGetGranularity(&unit, &wanted, CU_MULTICAST_GRANULARITY_MINIMUM), context, {"cuMulticastGetGranularity"});
  return unit;
}

std::unique_ptr<MulticastObject> new_multicast(const Context& context, size_t bytes, uint32_t devices) {
  const Cold cold(context);
  const CUmulticastObjectProp wanted = properties(bytes, devices);
  CUmemGenericAllocationHandle handle = 0;
  check(functions().cuMulticastCreate(&handle, &wanted), context, {"cuMulticastCreate", bytes});
  return std::make_unique<Object>(context, handle, bytes);
}

std::unique_ptr<MulticastObject> open_multicast(const Context& context, int32_t fd, size_t bytes) {
  const Cold cold(context);
  CUmemGenericAllocationHandle handle = 0;
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  const CUresult code = context.driver.cuMemImportFromShareableHandle(&handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(fd);
  check(code, context, {"cuMemImportFromShareableHandle", bytes});
  return std::make_unique<Object>(context, handle, bytes);
}

}  // namespace symmetra::device::cuda

#endif
