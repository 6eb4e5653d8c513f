// Driver functions that the runtime API does not wrap, loaded at run time: the binary must start without a driver, so it does not link
// libcuda.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

namespace symmetra::device::cuda {

/// Members have the names of the functions, except where headers define these names as macros.
struct Driver {
  decltype(&::cuGetErrorName) cuGetErrorName;
  decltype(&::cuGetErrorString) cuGetErrorString;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuPointerGetAttributes) cuPointerGetAttributes;
  decltype(&::cuMemGetAddressRange) cuMemGetAddressRange;
  decltype(&::cuMemGetAllocationGranularity) cuMemGetAllocationGranularity;
  decltype(&::cuMemCreate) cuMemCreate;
  decltype(&::cuMemRelease) cuMemRelease;
  decltype(&::cuMemAddressReserve) cuMemAddressReserve;
  decltype(&::cuMemAddressFree) cuMemAddressFree;
  decltype(&::cuMemMap) cuMemMap;
  decltype(&::cuMemUnmap) cuMemUnmap;
  decltype(&::cuMemSetAccess) cuMemSetAccess;
  decltype(&::cuMemExportToShareableHandle) cuMemExportToShareableHandle;
  decltype(&::cuMemImportFromShareableHandle) cuMemImportFromShareableHandle;
  decltype(&::cuMemRetainAllocationHandle) cuMemRetainAllocationHandle;
  decltype(&::cuStreamWriteValue32) cuStreamWriteValue32;
  decltype(&::cuStreamGetId) cuStreamGetId;
  // The signatures of kSignatures. Newer headers give the names to functions with more parameters.
  PFN_cuStreamGetCaptureInfo_v11030 get_capture_info;
  PFN_cuStreamUpdateCaptureDependencies_v11030 update_capture_dependencies;
  PFN_cuGraphAddDependencies_v10000 add_dependencies;
  PFN_cuGraphRemoveDependencies_v10000 remove_dependencies;
  /// Null in older drivers. Also answers for streams whose last kernel lets the next begin early.
  PFN_cuStreamGetCaptureInfo_v12030 get_capture_info_with_edges;
};

/// A driver function with the signature of a release. Throws if the driver is missing or lacks the function; the message names it.
void* find(const char* symbol, unsigned int release);
template <typename Function>
void load(Function& into, const char* symbol, unsigned int release) {
  into = reinterpret_cast<Function>(find(symbol, release));
}

/// The table, loaded by the first call that succeeds. Throws if the driver is missing or lacks a symbol; the message names it.
const Driver& driver();

}  // namespace symmetra::device::cuda
