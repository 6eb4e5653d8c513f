#include "cpp/device/cuda/driver.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::cuda {
namespace {

// The release whose signatures the table has. No signature has changed since, and a newer release would refuse drivers that work.
constexpr unsigned int kSignatures = 12000;

template <typename Function>
void load(Function& into, const char* symbol) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code = cudaGetDriverEntryPointByVersion(symbol, &found, kSignatures, cudaEnableDefault, &result);
  if (code != cudaSuccess) {
    cudaGetLastError();
    throw Error(ErrorKind::kDevice, std::string("no CUDA driver: ") + cudaGetErrorString(code) + " (looking for " + symbol + ")", code);
  }
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw Error(ErrorKind::kUnsupported, std::string("the CUDA driver has no ") + symbol + " of release 12.0: install a newer driver");
  }
  into = reinterpret_cast<Function>(found);
}

Driver load_all() {
  Driver table{};
  load(table.cuGetErrorName, "cuGetErrorName");
  load(table.cuGetErrorString, "cuGetErrorString");
  load(table.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  load(table.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  load(table.cuCtxGetCurrent, "cuCtxGetCurrent");
  load(table.cuCtxSetCurrent, "cuCtxSetCurrent");
  load(table.cuPointerGetAttributes, "cuPointerGetAttributes");
  load(table.cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  load(table.cuMemCreate, "cuMemCreate");
  load(table.cuMemRelease, "cuMemRelease");
  load(table.cuMemAddressReserve, "cuMemAddressReserve");
  load(table.cuMemAddressFree, "cuMemAddressFree");
  load(table.cuMemMap, "cuMemMap");
  load(table.cuMemUnmap, "cuMemUnmap");
  load(table.cuMemSetAccess, "cuMemSetAccess");
  load(table.cuMemExportToShareableHandle, "cuMemExportToShareableHandle");
  load(table.cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle");
  load(table.cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle");
  return table;
}

}  // namespace

const Driver& driver() {
  static const Driver table = load_all();
  return table;
}

}  // namespace symmetra::device::cuda
