#include "cpp/device/hip/context.hpp"

#include "cpp/device/hip/module.hpp"

namespace symmetra::device::hip {

const Context& primary(int32_t ordinal) {
  return gpu::primary<Context>(ordinal, [](int32_t device) {
    const Context context{runtime(), device};
    load_kernels(context);
    return context;
  });
}

hipError_t Context::recorder(hipStream_t stream, gpu::Recorder<Context>* recorder) const noexcept {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  unsigned long long id = 0;
  gpu::Recorder<Context> found;
  const hipError_t code = api.StreamGetCaptureInfo_v2(stream, &status, &id, &found.graph, &found.tips, &found.count);
  if (code != hipSuccess) return code;
  if (status == hipStreamCaptureStatusInvalidated) return hipErrorStreamCaptureInvalidated;
  if (status == hipStreamCaptureStatusActive) {
    found.id = id;
    *recorder = found;
  }
  return hipSuccess;
}

}  // namespace symmetra::device::hip
