// A device's primary context, and a guard that makes it current.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cpp/device/cuda/driver.hpp"
#include "cpp/device/device.hpp"
#include "cpp/device/gpu/drain.hpp"
#include "cpp/device/gpu/stream.hpp"
#include "kernels/cuda/kernels.hpp"

namespace symmetra::device::cuda {

/// The CUDA runtime.
struct Api {
#define SYMMETRA_CUDA_TYPE(name) using name = cuda##name;
#define SYMMETRA_CUDA_CONSTANT(name) static constexpr auto name = cuda##name;
#define SYMMETRA_CUDA_FUNCTION(name) decltype(&::cuda##name) name = &::cuda##name;
  SYMMETRA_GPU_TYPES(SYMMETRA_CUDA_TYPE)
  SYMMETRA_GPU_CONSTANTS(SYMMETRA_CUDA_CONSTANT)
  SYMMETRA_GPU_FUNCTIONS(SYMMETRA_CUDA_FUNCTION)
#undef SYMMETRA_CUDA_TYPE
#undef SYMMETRA_CUDA_CONSTANT
#undef SYMMETRA_CUDA_FUNCTION
  static constexpr const char* kVendor = "CUDA";
  static constexpr const char* kPrefix = "cuda";
  static ErrorKind kind_of(int32_t code);
};

/// Makes a context current, and restores the thread's previous context at the end, even if there was none. Compares
/// contexts instead of ordinals, because the caller's context may not be the primary one.
class Current {
 public:
  explicit Current(const struct Context& context) noexcept;
  ~Current() {
    if (switched_) driver_.cuCtxSetCurrent(previous_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
  bool switched_;
};

struct Context {
  using Api = cuda::Api;
  using Current = cuda::Current;
  static constexpr Api api{};
  const Driver& driver;
  int32_t ordinal;
  CUcontext handle;

  bool ready() const noexcept { return handle != nullptr; }
  static cudaStream_t legacy() noexcept { return cudaStreamLegacy; }
  static cudaStream_t per_thread() noexcept { return cudaStreamPerThread; }
  static int usual_priority(int least) noexcept { return least; }
  int32_t device_of(cudaStream_t stream) const {
    int ordinal_of_stream = -1;
    gpu::check(cudaStreamGetDevice(stream, &ordinal_of_stream), *this, {"StreamGetDevice"});
    return ordinal_of_stream;
  }
  cudaError_t instantiate(cudaGraphExec_t* exec, cudaGraph_t graph) const noexcept { return cudaGraphInstantiate(exec, graph, 0); }
  cudaError_t launch(cudaStream_t stream, kernels::Kind kind, const void* args, const kernels::Geometry& geometry) const noexcept {
    return static_cast<cudaError_t>(kernels::cuda::launch(stream, kind, args, geometry));
  }
  // By default the driver writes after a fence of the whole system.
  cudaError_t store(cudaStream_t stream, uint32_t* word, uint32_t value) const noexcept {
    const auto address = reinterpret_cast<CUdeviceptr>(word);
    return static_cast<cudaError_t>(driver.cuStreamWriteValue32(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  uint64_t stream_id(cudaStream_t stream) const noexcept {
    unsigned long long id = 0;
    return driver.cuStreamGetId(stream, &id) == CUDA_SUCCESS ? id : 0;
  }
  cudaError_t recorder(cudaStream_t stream, gpu::Recorder<Context>* recorder) const noexcept;
  cudaError_t add_tips(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count) const noexcept {
    return static_cast<cudaError_t>(driver.update_capture_dependencies(stream, nodes, count, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  }
  cudaError_t set_tips(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count) const noexcept {
    return static_cast<cudaError_t>(driver.update_capture_dependencies(stream, nodes, count, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  }
  cudaError_t add_edges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) const noexcept {
    return static_cast<cudaError_t>(driver.add_dependencies(graph, from, to, count));
  }
  cudaError_t remove_edges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) const noexcept {
    return static_cast<cudaError_t>(driver.remove_dependencies(graph, from, to, count));
  }
};

inline Current::Current(const Context& context) noexcept : driver_(context.driver) {
  driver_.cuCtxGetCurrent(&previous_);
  switched_ = previous_ != context.handle;
  if (switched_) driver_.cuCtxSetCurrent(context.handle);
}

using gpu::Call;
using gpu::check;
using gpu::Cold;
using gpu::Drain;

/// For driver calls, by their full names.
void check(CUresult code, const Context& context, Call call);

/// The primary context of an existing device. Retained by the first call and never released, like the runtime's own
/// reference: objects may refer to it forever.
const Context& primary(int32_t ordinal);

/// Leaves the context current on the calling thread.
void become_current(const Context& context);
/// The UUID of a visible device. See device.cc.
Uuid uuid_of(const Context& context, int32_t ordinal);
/// Classifies a pointer. See device.cc.
PointerInfo find_pointer(const Context& context, const uint8_t* pointer);

}  // namespace symmetra::device::cuda
