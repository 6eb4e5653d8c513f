// The kernels compiled by nvcc, and their launches.
#include <cuda_runtime.h>

#include "kernels/cuda/kernels.hpp"
#include "kernels/dispatch.hpp"

namespace symmetra::kernels::cuda {
namespace {

struct Backend {
  using Entry = const void*;
  static constexpr bool kThreadAnItem = true;
  static constexpr bool kNormsOfAWorld = true;
  static constexpr bool kQuantisesInOneShot = true;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
};

/// Shared memory of a block that needs no request.
constexpr uint32_t kUsualSharedBytes = 48 * 1024;

int32_t load(const void* kernel) noexcept {
  cudaFuncAttributes attributes;
  return kernel == nullptr ? cudaSuccess : cudaFuncGetAttributes(&attributes, kernel);
}

}  // namespace

int32_t load_all() noexcept { return each_kernel<Backend>(load); }

int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept {
  const void* const entry = kernel<Backend>(kind, args, geometry);
  if (entry == nullptr) return cudaErrorInvalidValue;
  if (geometry.shared_bytes > kUsualSharedBytes) {
    const auto bytes = static_cast<int>(geometry.shared_bytes);
    const cudaError_t error = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = geometry.blocks;
  config.blockDim = geometry.threads;
  config.dynamicSmemBytes = geometry.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = geometry.programmatic != 0 ? 1 : 0;
  void* pointers[] = {const_cast<void*>(args)};
  return cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace symmetra::kernels::cuda
