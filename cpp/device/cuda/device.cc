#include "cpp/device/cuda/device.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "cpp/device/cuda/drain.hpp"
#include "cpp/device/cuda/error.hpp"
#include "cpp/device/cuda/ipc.hpp"
#include "cpp/device/cuda/memory.hpp"
#include "cpp/device/cuda/shared.hpp"
#include "cpp/device/cuda/stream.hpp"

namespace symmetra::device::cuda {
namespace {

/// 13000 is 13.0.
std::string release(int version) { return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10); }

std::string find_versions(const Context& context) {
  int driver_version = 0;
  int runtime_version = 0;
  check(cudaDriverGetVersion(&driver_version), context, {"cudaDriverGetVersion"});
  check(cudaRuntimeGetVersion(&runtime_version), context, {"cudaRuntimeGetVersion"});
  std::string versions = "driver " + release(driver_version);
  // The number people know a driver by; the CUDA API does not tell it.
  std::string package;
  if (std::ifstream("/sys/module/nvidia/version") >> package) versions += " (" + package + ')';
  return versions + ", runtime " + release(runtime_version);
}

bool has(const Context& context, CUdevice_attribute attribute) {
  int value = 0;
  check(context.driver.cuDeviceGetAttribute(&value, attribute, context.ordinal), context, {"cuDeviceGetAttribute"});
  return value != 0;
}

cudaDeviceProp native_properties(const Context& context) {
  cudaDeviceProp native{};
  check(cudaGetDeviceProperties(&native, context.ordinal), context, {"cudaGetDeviceProperties"});
  return native;
}

Properties find_properties(const Context& context, const cudaDeviceProp& native) {
  Properties found{};
  found.kind = kKindCuda;
  found.ordinal = context.ordinal;
  found.memory_bytes = native.totalGlobalMem;
  found.multiprocessors = static_cast<uint32_t>(native.multiProcessorCount);
  found.major = static_cast<uint32_t>(native.major);
  found.minor = static_cast<uint32_t>(native.minor);
  found.shared_fd = has(context, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
                    has(context, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  // The runtime tells of IPC as a whole by its events.
  found.legacy_ipc = native.unifiedAddressing != 0 && has(context, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  found.warp = static_cast<uint32_t>(native.warpSize);
  static_assert(sizeof(found.uuid) == sizeof(native.uuid.bytes));
  std::copy(std::begin(native.uuid.bytes), std::end(native.uuid.bytes), std::begin(found.uuid));
  return found;
}

class Opened final : public Device {
 public:
  Opened(const Context& context, const cudaDeviceProp& native)
      : context_(context), properties_(find_properties(context, native)), name_(native.name), versions_(find_versions(context)) {}

  Properties properties() const noexcept override { return properties_; }
  const std::string& name() const noexcept override { return name_; }
  const std::string& versions() const noexcept override { return versions_; }
  const char* describe(int32_t native_code) const noexcept override { return cudaGetErrorString(static_cast<cudaError_t>(native_code)); }

  std::unique_ptr<Memory> allocate(size_t bytes) const override { return cuda::allocate(context_, bytes); }
  std::unique_ptr<Memory> pin(uint8_t* address, size_t bytes) const override { return cuda::pin(context_, address, bytes); }
  std::unique_ptr<Memory> allocate_shared(size_t bytes) const override { return cuda::allocate_shared(context_, bytes); }
  size_t shared_granularity() const override { return cuda::shared_granularity(context_); }
  std::unique_ptr<Memory> import_shared(int32_t fd, size_t bytes) const override { return cuda::import_shared(context_, fd, bytes); }
  std::unique_ptr<Memory> alias_shared(const Memory& memory) const override { return cuda::alias_shared(context_, memory); }

  PointerInfo classify(const uint8_t* pointer) const override { return cuda::classify(context_, pointer); }
  IpcHandle export_ipc(const uint8_t* base) const override { return cuda::export_ipc(context_, base); }
  std::unique_ptr<Memory> import_ipc(const IpcHandle& handle, size_t bytes) const override {
    return cuda::import_ipc(context_, handle, bytes);
  }
  void enable_peer(int32_t ordinal) const override { cuda::enable_peer(context_, ordinal); }
  bool can_access(int32_t ordinal) const override { return cuda::can_access(context_, ordinal); }

  std::unique_ptr<device::Stream> create_stream(bool urgent) const override { return std::make_unique<Stream>(context_, urgent); }
  std::unique_ptr<device::Stream> borrow_stream(uint64_t raw) const override { return std::make_unique<Stream>(context_, raw); }
  std::unique_ptr<device::Event> create_event() const override { return std::make_unique<Event>(context_); }
  void make_current() const override { check(context_.driver.cuCtxSetCurrent(context_.handle), context_, {"cuCtxSetCurrent"}); }
  void synchronize() const override {
    Drain drain(context_);
    check(drain.wait(), context_, {"synchronize"});
  }

 private:
  const Context& context_;
  Properties properties_;
  std::string name_;
  std::string versions_;
};

}  // namespace

uint32_t count() noexcept {
  int devices = 0;
  return settle(cudaGetDeviceCount(&devices)) == cudaSuccess ? static_cast<uint32_t>(devices) : 0;
}

std::shared_ptr<Device> open(int32_t ordinal) {
  int devices = 0;
  const auto code = static_cast<cudaError_t>(settle(cudaGetDeviceCount(&devices)));
  if (code != cudaSuccess) throw Error(ErrorKind::kDevice, std::string("no CUDA devices: ") + cudaGetErrorString(code), code);
  if (ordinal < 0 || ordinal >= devices) {
    throw Error(ErrorKind::kInvalidArgument,
                "CUDA device " + std::to_string(ordinal) + ", but the ordinal must be in 0.." + std::to_string(devices));
  }
  const Context& context = primary(ordinal);
  return std::make_shared<Opened>(context, native_properties(context));
}

}  // namespace symmetra::device::cuda
