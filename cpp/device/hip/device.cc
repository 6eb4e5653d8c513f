#include "cpp/device/hip/device.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "cpp/device/gpu/device.hpp"
#include "cpp/device/hip/graph.hpp"
#include "cpp/device/hip/shared.hpp"

namespace symmetra::device::hip {
namespace {

/// Formats a version: 50221153 is 5.2.21153.
std::string release(int version) {
  return std::to_string(version / 10000000) + '.' + std::to_string(version / 100000 % 100) + '.' + std::to_string(version % 100000);
}

std::string find_versions(const Context& context) {
  int driver = 0;
  int runtime = 0;
  check(context.api.DriverGetVersion(&driver), context, {"DriverGetVersion"});
  check(context.api.RuntimeGetVersion(&runtime), context, {"RuntimeGetVersion"});
  return "driver " + release(driver) + ", runtime " + release(runtime);
}

std::string find_name(const Context& context) {
  char name[256] = {};
  check(context.api.DeviceGetName(name, sizeof(name) - 1, context.ordinal), context, {"DeviceGetName"});
  return name;
}

uint32_t attribute(const Context& context, hipDeviceAttribute_t asked) {
  int value = 0;
  check(context.api.DeviceGetAttribute(&value, asked, context.ordinal), context, {"DeviceGetAttribute"});
  return static_cast<uint32_t>(value);
}

Properties find_properties(const Context& context) {
  Properties found{};
  found.kind = kKindHip;
  found.ordinal = context.ordinal;
  size_t memory_bytes = 0;
  check(context.api.DeviceTotalMem(&memory_bytes, context.ordinal), context, {"DeviceTotalMem"});
  found.memory_bytes = memory_bytes;
  found.multiprocessors = attribute(context, hipDeviceAttributeMultiprocessorCount);
  found.major = attribute(context, hipDeviceAttributeComputeCapabilityMajor);
  found.minor = attribute(context, hipDeviceAttributeComputeCapabilityMinor);
  // Every runtime supports one of the two methods of shared.hpp, and legacy IPC.
  found.shared_fd = 1;
  found.legacy_ipc = 1;
  found.warp = attribute(context, hipDeviceAttributeWarpSize);
  const Uuid uuid = uuid_of(context, context.ordinal);
  std::copy(uuid.begin(), uuid.end(), std::begin(found.uuid));
  return found;
}

/// Whether the runtime exports the allocation at `base`. Determined by trying, because no query exists: memory mapped
/// by address-range calls has no such handle.
bool is_exportable(const Context& context, const uint8_t* base) {
  const Cold cold(context);
  hipIpcMemHandle_t native;
  return gpu::settle(context.api, context.api.IpcGetMemHandle(&native, const_cast<uint8_t*>(base))) == hipSuccess;
}

}  // namespace

void become_current(const Context& context) { check(context.api.SetDevice(context.ordinal), context, {"SetDevice"}); }

Uuid uuid_of(const Context& context, int32_t ordinal) {
  hipUUID native{};
  check(context.api.DeviceGetUuid(&native, ordinal), context, {"DeviceGetUuid"});
  Uuid uuid;
  static_assert(sizeof(uuid) == sizeof(native.bytes));
  std::copy(std::begin(native.bytes), std::end(native.bytes), uuid.begin());
  return uuid;
}

PointerInfo find_pointer(const Context& context, const uint8_t* pointer) {
  const Cold cold(context);
  void* const address = const_cast<uint8_t*>(pointer);
  hipPointerAttribute_t attributes{};
  // Older runtimes refuse unknown pointers, newer runtimes report them as such.
  if (gpu::settle(context.api, context.api.PointerGetAttributes(&attributes, address)) != hipSuccess) return {kPointerUnknown, -1, 0, 0};
  hipDeviceptr_t base = nullptr;
  size_t bytes = 0;
  const bool found = gpu::settle(context.api, context.api.MemGetAddressRange(&base, &bytes, address)) == hipSuccess;
  const uint64_t start = found ? reinterpret_cast<uint64_t>(base) : 0;
  if (attributes.isManaged != 0) return {kPointerManaged, attributes.device, start, bytes};
  if (memory_type(attributes) == hipMemoryTypeHost) return {kPointerPinned, -1, start, bytes};
  if (memory_type(attributes) != hipMemoryTypeDevice || !found) return {kPointerUnknown, -1, 0, 0};
  const bool exportable = is_exportable(context, reinterpret_cast<const uint8_t*>(start));
  return {exportable ? kPointerDevice : kPointerVmm, attributes.device, start, bytes};
}

uint32_t count() noexcept {
  try {
    const Runtime& hip = runtime();
    int devices = 0;
    if (hip.GetDeviceCount(&devices) == hipSuccess) return static_cast<uint32_t>(devices);
    static_cast<void>(hip.GetLastError());
  } catch (...) {
    // Without a runtime there are no devices; open reports the reason.
  }
  return 0;
}

std::shared_ptr<Device> open(int32_t ordinal) {
  gpu::require_device(runtime(), ordinal);
  const Context& context = primary(ordinal);
  const Properties properties = find_properties(context);
  std::string name = find_name(context);
  return std::make_shared<gpu::OpenDevice<Context>>(context, properties, std::move(name), find_versions(context));
}

int32_t current() {
  const Runtime& hip = runtime();
  int device = 0;
  const Context context{hip, 0};
  check(hip.GetDevice(&device), context, {"GetDevice"});
  return device;
}

}  // namespace symmetra::device::hip
