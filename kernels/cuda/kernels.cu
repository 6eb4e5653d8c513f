// The kernels compiled by nvcc, and their launches.
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/kernels.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/norm/clustered.cuh"
#include "kernels/norm/clustered_two_shot.cuh"

namespace symmetra::kernels::cuda {
namespace {

struct Backend {
  using Entry = const void*;
  static constexpr bool kThreadAnItem = true;
  static constexpr bool kNormsOfAWorld = true;
  static constexpr bool kClusters = true;
  static constexpr bool kQuantisesAtOnce = true;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
  /// Usual formats have specialised kernels for the usual numbers of ranks, if requested.
  template <bool kKnown, bool kQuantised, class Visit>
  static Entry with_format(const QuantisedRows& how, Visit visit) {
    if constexpr (!kQuantised) {
      return visit(NoFormat{});
    } else {
      if constexpr (kKnown) {
        const auto known = [&](uint32_t to, uint32_t scaling) { return how.to == to && how.scaling == scaling; };
        if (known(kNarrowE4M3, kScalingPerToken)) return visit(KnownFormat<kNarrowE4M3, kScalingPerToken>{});
        if (known(kNarrowE4M3, kScalingPerGroup)) return visit(KnownFormat<kNarrowE4M3, kScalingPerGroup>{});
        if (known(kNarrowE4M3, kScalingMx)) return visit(KnownFormat<kNarrowE4M3, kScalingMx>{});
        if (known(kNarrowE2M1, kScalingNvfp4)) return visit(KnownFormat<kNarrowE2M1, kScalingNvfp4>{});
      }
      return visit(AnyFormat{});
    }
  }
  /// `visit` gets the format, and whether a column of a row has more than one packet. Such rows have no kernels for usual formats.
  template <bool kKnown, bool kQuantised, class Visit>
  static Entry with_rows(const FusedNormArgs& args, Visit visit) {
    const QuantisedRows& how = args.norm.quantised;
    if (row_packets(args.norm) > kNormColumns) {
      return with_format<false, kQuantised>(how, [&](auto format) { return visit(format, std::true_type{}); });
    }
    return with_format<kKnown, kQuantised>(how, [&](auto format) { return visit(format, std::false_type{}); });
  }
  template <class Element, uint32_t kWorld, bool kQuantised, class Args>
  static Entry clustered(const Args& args) {
    return with_rows<kWorld != 0, kQuantised>(
        args, [](auto format, auto tiled) { return entry<&norm_clustered<Element, kWorld, decltype(format), tiled.value, Args>>(); });
  }
  /// The two-shot is never selected for two ranks, so kernels for any world size serve them.
  template <class Element, uint32_t kWorld, bool kQuantised>
  static Entry clustered_two_shot(const FusedNormArgs& args) {
    constexpr uint32_t kFixed = kWorld == 2 ? 0 : kWorld;
    const bool by_share = args.clustered == kClusteredByShare;
    return with_rows<kFixed != 0, kQuantised>(args, [&](auto format, auto tiled) {
      using Format = decltype(format);
      if (by_share) return entry<&norm_clustered_two_shot<Element, kFixed, Format, true, tiled.value>>();
      return entry<&norm_clustered_two_shot<Element, kFixed, Format, false, tiled.value>>();
    });
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
  const cudaError_t error = cudaFuncGetAttributes(&attributes, Backend::entry<&norm_clustered<Sum<F32>, 0, NoFormat, false>>());
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
