// The HIP runtime, loaded when there is one: the binary must start where there is none, so
// libamdhip64 is never linked.
#pragma once

#include "cpp/device/hip/version.hpp"

// clang-format off
/// Every function of the runtime that this room calls.
#define SYMMETRA_HIP_FUNCTIONS(each) \
  each(hipDeviceCanAccessPeer) each(hipDeviceEnablePeerAccess) each(hipDeviceGetAttribute) \
  each(hipDeviceGetName) each(hipDeviceGetStreamPriorityRange) each(hipDeviceGetUuid) each(hipDeviceTotalMem) each(hipDriverGetVersion) \
  each(hipEventCreateWithFlags) each(hipEventDestroy) each(hipEventElapsedTime) each(hipEventQuery) \
  each(hipEventRecord) each(hipEventSynchronize) each(hipExtMallocWithFlags) each(hipFree) each(hipGetDevice) \
  each(hipGetDeviceCount) each(hipGetErrorName) each(hipGetErrorString) each(hipGetLastError) \
  each(hipGetStreamDeviceId) each(hipGraphDestroy) each(hipGraphExecDestroy) each(hipGraphInstantiate) \
  each(hipGraphLaunch) each(hipHostGetDevicePointer) each(hipHostRegister) each(hipHostUnregister) \
  each(hipIpcCloseMemHandle) each(hipIpcGetMemHandle) each(hipIpcOpenMemHandle) each(hipMalloc) \
  each(hipMemAddressFree) each(hipMemAddressReserve) each(hipMemcpyAsync) each(hipMemCreate) \
  each(hipMemExportToShareableHandle) each(hipMemGetAddressRange) each(hipMemGetAllocationGranularity) \
  each(hipMemGetInfo) each(hipMemImportFromShareableHandle) each(hipMemMap) each(hipMemRelease) \
  each(hipMemRetainAllocationHandle) each(hipMemSetAccess) each(hipMemsetAsync) each(hipMemUnmap) \
  each(hipModuleGetFunction) each(hipModuleLaunchKernel) each(hipModuleLoadData) each(hipPointerGetAttributes) \
  each(hipRuntimeGetVersion) each(hipSetDevice) each(hipStreamBeginCapture) each(hipStreamCreateWithFlags) \
  each(hipStreamCreateWithPriority) each(hipStreamDestroy) each(hipStreamEndCapture) each(hipStreamIsCapturing) \
  each(hipStreamQuery) each(hipStreamSynchronize) each(hipStreamWaitEvent) each(hipThreadExchangeStreamCaptureMode)
// clang-format on

namespace symmetra::device::hip {

/// Named like the functions they hold.
struct Runtime {
#define SYMMETRA_HIP_MEMBER(function) decltype(&::function) function;
  SYMMETRA_HIP_FUNCTIONS(SYMMETRA_HIP_MEMBER)
#undef SYMMETRA_HIP_MEMBER
};

/// The table, loaded by the first call that succeeds and never unloaded. Throws where the runtime
/// is missing or lacks a function, which the message names.
const Runtime& runtime();

}  // namespace symmetra::device::hip
