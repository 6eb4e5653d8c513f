#include "cpp/device/cuda/context.hpp"

#include <string>

namespace symmetra::device::cuda {

// Equal errors have equal numbers in the runtime and the driver.
static_assert(int{cudaErrorMemoryAllocation} == int{CUDA_ERROR_OUT_OF_MEMORY});
static_assert(int{cudaErrorNotSupported} == int{CUDA_ERROR_NOT_SUPPORTED});
static_assert(int{cudaErrorPeerAccessUnsupported} == int{CUDA_ERROR_PEER_ACCESS_UNSUPPORTED});

ErrorKind Api::kind_of(int32_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::kOutOfMemory;
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kDevice;
  }
}

cudaError_t Context::recorder(cudaStream_t stream, gpu::Recorder<Context>* recorder) const noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  gpu::Recorder<Context> found;
  CUresult code = CUDA_SUCCESS;
  const CUgraphEdgeData* edges = nullptr;
  if (driver.get_capture_info_with_edges != nullptr) {
    code = driver.get_capture_info_with_edges(stream, &status, &id, &found.graph, &found.tips, &edges, &found.count);
  } else {
    code = driver.get_capture_info(stream, &status, &id, &found.graph, &found.tips, &found.count);
  }
  if (code != CUDA_SUCCESS) return static_cast<cudaError_t>(code);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return cudaErrorStreamCaptureInvalidated;
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    found.id = id;
    *recorder = found;
  }
  return cudaSuccess;
}

void check(CUresult code, const Context& context, Call call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* words = nullptr;
  context.driver.cuGetErrorName(code, &name);
  context.driver.cuGetErrorString(code, &words);
  gpu::raise(code, name != nullptr ? name : "unknown CUresult", words != nullptr ? words : std::to_string(code).c_str(), context, call);
}

const Context& primary(int32_t ordinal) {
  return gpu::primary<Context>(ordinal, [](int32_t device) {
    Context context{driver(), device, nullptr};
    // The runtime initialises the device first, and then loads this binary's kernels into the context.
    check(cudaInitDevice(device, 0, 0), context, {"InitDevice"});
    check(context.driver.cuDevicePrimaryCtxRetain(&context.handle, device), context, {"cuDevicePrimaryCtxRetain"});
    const Current current(context);
    check(static_cast<cudaError_t>(kernels::cuda::load_all()), context, {"FuncGetAttributes"});
    return context;
  });
}

}  // namespace symmetra::device::cuda
