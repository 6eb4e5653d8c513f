#include "cpp/device/cuda/driver.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::cuda {
namespace {

// The release whose signatures the table has. No signature has changed since, and a newer release would refuse drivers
// that work.
constexpr unsigned int kSignatures = 12000;

Driver load_all() {
  Driver table{};
  load(table.cuGetErrorName, "cuGetErrorName", kSignatures);
  load(table.cuGetErrorString, "cuGetErrorString", kSignatures);
  load(table.cuDeviceGetAttribute, "cuDeviceGetAttribute", kSignatures);
  load(table.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", kSignatures);
  load(table.cuCtxGetCurrent, "cuCtxGetCurrent", kSignatures);
  load(table.cuCtxGetDevice, "cuCtxGetDevice", kSignatures);
  load(table.cuCtxSetCurrent, "cuCtxSetCurrent", kSignatures);
  load(table.cuPointerGetAttributes, "cuPointerGetAttributes", kSignatures);
  load(table.cuMemGetAddressRange, "cuMemGetAddressRange", kSignatures);
  load(table.cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", kSignatures);
  load(table.cuMemCreate, "cuMemCreate", kSignatures);
  load(table.cuMemRelease, "cuMemRelease", kSignatures);
  load(table.cuMemAddressReserve, "cuMemAddressReserve", kSignatures);
  load(table.cuMemAddressFree, "cuMemAddressFree", kSignatures);
  load(table.cuMemMap, "cuMemMap", kSignatures);
  load(table.cuMemUnmap, "cuMemUnmap", kSignatures);
  load(table.cuMemSetAccess, "cuMemSetAccess", kSignatures);
  load(table.cuMemExportToShareableHandle, "cuMemExportToShareableHandle", kSignatures);
  load(table.cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", kSignatures);
  load(table.cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", kSignatures);
  load(table.cuStreamWriteValue32, "cuStreamWriteValue32", kSignatures);
  load(table.cuStreamGetId, "cuStreamGetId", kSignatures);
  load(table.get_capture_info, "cuStreamGetCaptureInfo", kSignatures);
  load(table.update_capture_dependencies, "cuStreamUpdateCaptureDependencies", kSignatures);
  load(table.add_dependencies, "cuGraphAddDependencies", kSignatures);
  load(table.remove_dependencies, "cuGraphRemoveDependencies", kSignatures);
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030)
    load(table.get_capture_info_with_edges, "cuStreamGetCaptureInfo", 12030);
  return table;
}

}  // namespace

void* find(const char* symbol, unsigned int release) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code = cudaGetDriverEntryPointByVersion(symbol, &found, release, cudaEnableDefault, &result);
  if (code != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorKind::kDevice, std::string("no CUDA driver: ") + cudaGetErrorString(code) + " (looking for " + symbol + ")", code);
  }
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    const std::string needed = std::to_string(release / 1000) + '.' + std::to_string(release % 1000 / 10);
    throw Error(ErrorKind::kUnsupported,
                std::string("the CUDA driver has no ") + symbol + " of release " + needed + ": install a newer driver");
  }
  return found;
}

const Driver& driver() {
  static const Driver table = load_all();
  return table;
}

}  // namespace symmetra::device::cuda
