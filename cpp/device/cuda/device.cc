#include "cpp/device/cuda/device.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "cpp/device/cuda/graph.hpp"
#include "cpp/device/cuda/multicast.hpp"
#include "cpp/device/cuda/pieces.hpp"
#include "cpp/device/cuda/shared.hpp"
#include "cpp/device/gpu/device.hpp"

namespace symmetra::device::cuda {
namespace {

/// Formats a version: 13000 is 13.0.
std::string release(int version) { return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10); }

std::string find_versions(const Context& context) {
  int driver_version = 0;
  int runtime_version = 0;
  check(cudaDriverGetVersion(&driver_version), context, {"DriverGetVersion"});
  check(cudaRuntimeGetVersion(&runtime_version), context, {"RuntimeGetVersion"});
  std::string versions = "driver " + release(driver_version);
  // The driver's package version, which the CUDA API does not report.
  std::string package;
  if (std::ifstream("/sys/module/nvidia/version") >> package) versions += " (" + package + ')';
  return versions + ", runtime " + release(runtime_version);
}

bool has(const Context& context, CUdevice_attribute attribute) {
  int value = 0;
  check(context.driver.cuDeviceGetAttribute(&value, attribute, context.ordinal), context, {"cuDeviceGetAttribute"});
  return value != 0;
}

/// Whether the device reports that it supports multicast. Old drivers do not know the attribute and return an error.
bool knows_multicast([[maybe_unused]] const Context& context) {
#if CUDA_VERSION >= 12010
  int value = 0;
  return context.driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, context.ordinal) == CUDA_SUCCESS &&
         value != 0;
#else
  return false;
#endif
}

cudaDeviceProp native_properties(const Context& context, int32_t ordinal) {
  cudaDeviceProp native{};
  check(cudaGetDeviceProperties(&native, ordinal), context, {"GetDeviceProperties"});
  return native;
}

Uuid uuid_in(const cudaDeviceProp& native) {
  Uuid uuid;
  static_assert(sizeof(uuid) == sizeof(native.uuid.bytes));
  std::copy(std::begin(native.uuid.bytes), std::end(native.uuid.bytes), uuid.begin());
  return uuid;
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
  // The runtime reports IPC support as that of events.
  found.legacy_ipc = native.unifiedAddressing != 0 && has(context, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  found.warp = static_cast<uint32_t>(native.warpSize);
  found.multicast = knows_multicast(context);
  const Current current(context);
  found.clusters = kernels::cuda::has_clusters();
  const Uuid uuid = uuid_in(native);
  std::copy(uuid.begin(), uuid.end(), std::begin(found.uuid));
  return found;
}

class OpenDevice final : public gpu::OpenDevice<Context> {
 public:
  OpenDevice(const Context& context, const Properties& properties, std::string name, std::string versions)
      : gpu::OpenDevice<Context>(context, properties, std::move(name), std::move(versions)), context_(context) {}

  void open_to_peers(const Memory& memory) const override { admit_peers(memory); }
  PointerInfo piece(const uint8_t* pointer) const override { return piece_at(context_, pointer); }
  int32_t export_piece(const uint8_t* base) const override { return cuda::export_piece(context_, base); }
  std::unique_ptr<Assembly> assemble(size_t bytes) const override { return new_assembly(context_, bytes); }
#ifdef SYMMETRA_MULTICAST
  size_t multicast_granularity(uint32_t devices) const override { return multicast_unit(context_, devices); }
  std::unique_ptr<MulticastObject> create_multicast(size_t bytes, uint32_t devices) const override {
    return new_multicast(context_, bytes, devices);
  }
  std::unique_ptr<MulticastObject> import_multicast(int32_t fd, size_t bytes) const override { return open_multicast(context_, fd, bytes); }
#endif

 private:
  const Context& context_;
};

}  // namespace

void become_current(const Context& context) { check(context.driver.cuCtxSetCurrent(context.handle), context, {"cuCtxSetCurrent"}); }

Uuid uuid_of(const Context& context, int32_t ordinal) { return uuid_in(native_properties(context, ordinal)); }

PointerInfo find_pointer(const Context& context, const uint8_t* pointer) {
  // The driver writes booleans of one or four bytes: a zeroed word works for both.
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

uint32_t count() noexcept {
  int devices = 0;
  return gpu::settle(Context::api, cudaGetDeviceCount(&devices)) == cudaSuccess ? static_cast<uint32_t>(devices) : 0;
}

std::shared_ptr<Device> open(int32_t ordinal) {
  gpu::require_device(Context::api, ordinal);
  const Context& context = primary(ordinal);
  const cudaDeviceProp native = native_properties(context, context.ordinal);
  const Properties properties = find_properties(context, native);
  return std::make_shared<OpenDevice>(context, properties, native.name, find_versions(context));
}

int32_t current() {
  // Every copy of the runtime in the process sets the context of the driver.
  const Context none{driver(), 0, nullptr};
  CUdevice device = 0;
  const CUresult code = none.driver.cuCtxGetDevice(&device);
  if (code == CUDA_ERROR_INVALID_CONTEXT) return 0;
  check(code, none, {"cuCtxGetDevice"});
  return device;
}

}  // namespace symmetra::device::cuda
