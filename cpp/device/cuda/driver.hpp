// The driver entry points the runtime API does not wrap, fetched at run time: the binary
// must start where there is no driver, so libcuda is never linked.
#pragma once

#include <cuda.h>

namespace symmetra::device::cuda {

/// Named like the functions they hold.
struct Driver {
  decltype(&::cuGetErrorName) cuGetErrorName;
  decltype(&::cuGetErrorString) cuGetErrorString;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute;
  decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuPointerGetAttributes) cuPointerGetAttributes;
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
};

/// The table, loaded by the first call that succeeds. Throws where the driver is
/// missing or lacks a symbol, which the message names.
const Driver& driver();

}  // namespace symmetra::device::cuda
