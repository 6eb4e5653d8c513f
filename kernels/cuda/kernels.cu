// The kernels compiled by nvcc, and their launches.
#include <cuda_runtime.h>

#include "kernels/cuda/kernels.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/norm/clustered.cuh"

namespace symmetra::kernels::cuda {
namespace {

struct Backend {
  using Entry = const void*;
  static constexpr bool kThreadAnItem = true;
  static constexpr bool kNormsOfAWorld = true;
  static constexpr bool kClusters = true;
  static constexpr bool kQuantisesInOneShot = true;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
  template <class Element, uint32_t kWorld, bool kQuantised, bool kTiled>
  static Entry clustered() {
    return entry<&norm_clustered<Element, kWorld, kQuantised, kTiled>>();
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

bool has_clusters() noexcept {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, Backend::clustered<Sum<F32>, 0, false, false>());
  return error == cudaSuccess && attributes.binaryVersion >= 90;
}

int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept {
  const void* const entry = kernel<Backend>(kind, args, geometry);
  if (entry == nullptr) return cudaErrorInvalidValue;
  if (geometry.shared_bytes > kUsualSharedBytes) {
    const auto bytes = static_cast<int>(geometry.shared_bytes);
    const cudaError_t error = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2]{};
  uint32_t count = 0;
  if (geometry.programmatic != 0) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (geometry.cluster != 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {geometry.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = geometry.blocks;
  config.blockDim = geometry.threads;
  config.dynamicSmemBytes = geometry.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  void* pointers[] = {const_cast<void*>(args)};
  return cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace symmetra::kernels::cuda
