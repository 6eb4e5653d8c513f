// The kernels compiled by clang for AMD GPUs, and their launches.
//
// clang's code around kernels calls functions of the HIP runtime. build.rs renames these functions in the object file,
// and the HIP backend defines the new names by a runtime that it loads if there is one. A program with this library
// and kernels of its own has the runtime's functions for its kernels.
#include <cstddef>
#include <cstdint>

/// Declarations of the runtime that clang looks up for a kernel. The runtime's header is not included: kernels need
/// nothing else of it.
struct dim3 {
  uint32_t x, y, z;
};
struct ihipStream_t;
extern "C" int32_t hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** args, size_t shared_bytes, ihipStream_t* stream);

#include "kernels/dispatch.hpp"
#include "kernels/hip/kernels.hpp"

namespace symmetra::kernels::hip {
namespace {

struct Backend {
  using Entry = const void*;
  static constexpr bool kThreadAnItem = true;
  static constexpr bool kNormsOfAWorld = false;  // clang spills registers in them
  static constexpr bool kClusters = false;
  static constexpr bool kQuantisesAtOnce = false;  // they would need scratch, as registers are too few
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
};

constexpr int32_t kErrorInvalidValue = 1;  // hipErrorInvalidValue

}  // namespace

int32_t launch(void* stream, Kind kind, const void* args, const Geometry& geometry) noexcept {
  const void* const entry = kernel<Backend>(kind, args, geometry);
  if (entry == nullptr) return kErrorInvalidValue;
  void* pointers[] = {const_cast<void*>(args)};
  const dim3 blocks{geometry.blocks, 1, 1}, threads{geometry.threads, 1, 1};
  return hipLaunchKernel(entry, blocks, threads, pointers, geometry.shared_bytes, static_cast<ihipStream_t*>(stream));
}

}  // namespace symmetra::kernels::hip
