// The HIP runtime, loaded if present: the binary must start without it, so it does not link libamdhip64.
#pragma once

#include "cpp/device/gpu/api.hpp"
#include "cpp/device/hip/version.hpp"
#include "symmetra/error.hpp"

// clang-format off
/// The runtime functions that only this backend calls, in addition to SYMMETRA_GPU_FUNCTIONS.
#define SYMMETRA_HIP_FUNCTIONS(each) \
  each(DeviceGetAttribute) each(DeviceGetName) each(DeviceGetUuid) each(DeviceTotalMem) each(ExtMallocWithFlags) \
  each(GetDevice) each(GetStreamDeviceId) each(GraphAddDependencies) each(GraphRemoveDependencies) each(MemAddressFree) each(MemAddressReserve) each(MemCreate) \
  each(MemExportToShareableHandle) each(MemGetAddressRange) each(MemGetAllocationGranularity) \
  each(MemImportFromShareableHandle) each(MemMap) each(MemRelease) each(MemRetainAllocationHandle) each(MemSetAccess) \
  each(MemsetD32Async) each(MemUnmap) each(ModuleGetFunction) each(ModuleLaunchKernel) each(ModuleLoadData) each(PointerGetAttributes) \
  each(SetDevice) each(StreamGetCaptureInfo_v2) each(StreamUpdateCaptureDependencies)
// clang-format on

namespace symmetra::device::hip {

/// The runtime. Members have the names of the functions without `hip`.
struct Runtime {
#define SYMMETRA_HIP_TYPE(name) using name = hip##name;
#define SYMMETRA_HIP_CONSTANT(name) static constexpr auto name = hip##name;
#define SYMMETRA_HIP_FUNCTION(name) decltype(&::hip##name) name;
  SYMMETRA_GPU_TYPES(SYMMETRA_HIP_TYPE)
  SYMMETRA_GPU_CONSTANTS(SYMMETRA_HIP_CONSTANT)
  SYMMETRA_GPU_FUNCTIONS(SYMMETRA_HIP_FUNCTION)
  SYMMETRA_HIP_FUNCTIONS(SYMMETRA_HIP_FUNCTION)
#undef SYMMETRA_HIP_TYPE
#undef SYMMETRA_HIP_CONSTANT
#undef SYMMETRA_HIP_FUNCTION
  static constexpr const char* kVendor = "HIP";
  static constexpr const char* kPrefix = "hip";
  static ErrorKind kind_of(int32_t code);
};

/// The table, loaded by the first call that succeeds and never unloaded. Throws if the runtime is missing or lacks a function; the message
/// names it.
const Runtime& runtime();

}  // namespace symmetra::device::hip
