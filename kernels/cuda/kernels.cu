// The kernels compiled by nvcc, and their launchers.
#include <cuda_runtime.h>

#include "kernels/cuda/kernels.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/geometry.hpp"

namespace symmetra::kernels::cuda {
namespace {

struct Backend {
  using Entry = const void*;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
};

/// What a block may have without asking.
constexpr uint32_t kUsualSharedBytes = 48 * 1024;

template <class Args>
int32_t launch(void* stream, const void* kernel, const Args& args, const Geometry& geometry) noexcept {
  if (geometry.shared_bytes > kUsualSharedBytes) {
    const auto bytes = static_cast<int>(geometry.shared_bytes);
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
  void* pointers[] = {const_cast<Args*>(&args)};
  return cudaLaunchKernelExC(&config, kernel, pointers);
}

int32_t load(const void* kernel) noexcept {
  cudaFuncAttributes attributes;
  return kernel == nullptr ? cudaSuccess : cudaFuncGetAttributes(&attributes, kernel);
}

}  // namespace

int32_t load_all() noexcept {
  for (const void* kernel : {reinterpret_cast<const void*>(&exchange_counts), reinterpret_cast<const void*>(&kernels::signal),
                             reinterpret_cast<const void*>(&kernels::agree), reinterpret_cast<const void*>(&kernels::probe)}) {
    if (const int32_t code = load(kernel)) return code;
  }
  return each_kernel<Backend>(load);
}

int32_t launch_all_reduce(void* stream, const AllReduceArgs& args, const Geometry& geometry) noexcept {
  const void* kernel = all_reduce_kernel<Backend>(args.algorithm, args.dtype, args.reduction, args.world);
  if (kernel == nullptr || !fits(args, geometry)) return cudaErrorInvalidValue;
  if (geometry.threads < items(args.algorithm, args.world, args.lanes_log2)) return cudaErrorInvalidValue;
  return launch(stream, kernel, args, geometry);
}

int32_t launch_exchange(void* stream, const ExchangeArgs& args, const Geometry& geometry) noexcept {
  const void* kernel = exchange_kernel<Backend>(args);
  if (kernel == nullptr || !fits(args, geometry) || geometry.threads < items(args)) return cudaErrorInvalidValue;
  return launch(stream, kernel, args, geometry);
}

int32_t launch_counts(void* stream, const CountsArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return cudaErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&exchange_counts), args, geometry);
}

int32_t launch_signal(void* stream, const SignalArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return cudaErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::signal), args, geometry);
}

int32_t launch_agree(void* stream, const AgreeArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return cudaErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::agree), args, geometry);
}

int32_t launch_probe(void* stream, const ProbeArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return cudaErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::probe), args, geometry);
}

}  // namespace symmetra::kernels::cuda
