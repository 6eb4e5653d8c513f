// The kernels compiled by clang for AMD GPUs, and their launchers.
//
// What clang writes around kernels calls functions of the HIP runtime. The build renames them
// in the object file (build.rs), and the HIP room defines them under the new names by way of a
// runtime that it loads when there is one: a program that holds this library and kernels of its
// own has the runtime's for those.
#include <cstddef>
#include <cstdint>

/// Of the runtime, as clang looks for it when it comes to a kernel. The runtime's header is not
/// read: kernels need nothing else of it.
struct dim3 {
  uint32_t x, y, z;
};
struct ihipStream_t;
extern "C" int32_t hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** args, size_t shared_bytes, ihipStream_t* stream);

#include "kernels/dispatch.hpp"
#include "kernels/geometry.hpp"
#include "kernels/hip/kernels.hpp"

namespace symmetra::kernels::hip {
namespace {

struct Backend {
  using Entry = const void*;
  template <auto kernel>
  static Entry entry() {
    return reinterpret_cast<const void*>(kernel);
  }
};

constexpr int32_t kErrorInvalidValue = 1;  // hipErrorInvalidValue

template <class Args>
int32_t launch(void* stream, const void* kernel, const Args& args, const Geometry& geometry) noexcept {
  void* pointers[] = {const_cast<Args*>(&args)};
  const dim3 blocks{geometry.blocks, 1, 1}, threads{geometry.threads, 1, 1};
  return hipLaunchKernel(kernel, blocks, threads, pointers, geometry.shared_bytes, static_cast<ihipStream_t*>(stream));
}

}  // namespace

int32_t launch_all_reduce(void* stream, const AllReduceArgs& args, const Geometry& geometry) noexcept {
  const void* kernel = all_reduce_kernel<Backend>(args.algorithm, args.dtype, args.reduction, args.world);
  if (kernel == nullptr || !fits(args, geometry)) return kErrorInvalidValue;
  if (geometry.threads < items(args.algorithm, args.world, args.lanes_log2)) return kErrorInvalidValue;
  return launch(stream, kernel, args, geometry);
}

int32_t launch_exchange(void* stream, const ExchangeArgs& args, const Geometry& geometry) noexcept {
  const void* kernel = exchange_kernel<Backend>(args);
  if (kernel == nullptr || !fits(args, geometry) || geometry.threads < items(args)) return kErrorInvalidValue;
  return launch(stream, kernel, args, geometry);
}

int32_t launch_counts(void* stream, const CountsArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return kErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&exchange_counts), args, geometry);
}

int32_t launch_signal(void* stream, const SignalArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return kErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::signal), args, geometry);
}

int32_t launch_agree(void* stream, const AgreeArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return kErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::agree), args, geometry);
}

int32_t launch_probe(void* stream, const ProbeArgs& args, const Geometry& geometry) noexcept {
  if (!fits(args, geometry)) return kErrorInvalidValue;
  return launch(stream, reinterpret_cast<const void*>(&kernels::probe), args, geometry);
}

}  // namespace symmetra::kernels::hip
