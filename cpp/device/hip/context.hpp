// A device of this process, and a guard that makes it current.
#pragma once

#include <cstdint>

#include "cpp/device/device.hpp"
#include "cpp/device/gpu/drain.hpp"
#include "cpp/device/gpu/stream.hpp"
#include "cpp/device/hip/runtime.hpp"
#include "kernels/hip/kernels.hpp"

namespace symmetra::device::hip {

/// Makes a device current, and restores the thread's previous device at the end.
class Current {
 public:
  explicit Current(const struct Context& context) noexcept;
  ~Current() {
    if (switched_ && previous_ >= 0) static_cast<void>(hip_.SetDevice(previous_));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Runtime& hip_;
  int previous_ = -1;
  bool switched_;
};

struct Context {
  using Api = Runtime;
  using Current = hip::Current;
  const Runtime& api;
  int32_t ordinal;

  static bool ready() noexcept { return true; }
  static hipStream_t legacy() noexcept { return legacy_stream(); }
  static hipStream_t per_thread() noexcept { return hipStreamPerThread; }
  // A stream created without a priority has priority 0; the range may extend to either side of it.
  static int usual_priority(int) noexcept { return 0; }
  int32_t device_of(hipStream_t stream) const noexcept { return api.GetStreamDeviceId(stream); }
  hipError_t instantiate(hipGraphExec_t* exec, hipGraph_t graph) const noexcept {
    return api.GraphInstantiate(exec, graph, nullptr, nullptr, 0);
  }
  static hipError_t launch(hipStream_t stream, kernels::Kind kind, const void* args, const kernels::Geometry& geometry) noexcept {
    return static_cast<hipError_t>(kernels::hip::launch(stream, kind, args, geometry));
  }
  // Graphs have a memset node; no documentation confirms that hipStreamWriteValue32 can be captured.
  hipError_t store(hipStream_t stream, uint32_t* word, uint32_t value) const noexcept {
    return api.MemsetD32Async(word, static_cast<int>(value), 1, stream);
  }
  // HIP gives streams no numbers.
  static uint64_t stream_id(hipStream_t) noexcept { return 0; }
  hipError_t recorder(hipStream_t stream, gpu::Recorder<Context>* recorder) const noexcept;
  hipError_t add_tips(hipStream_t stream, hipGraphNode_t* nodes, size_t count) const noexcept {
    return api.StreamUpdateCaptureDependencies(stream, nodes, count, hipStreamAddCaptureDependencies);
  }
  hipError_t set_tips(hipStream_t stream, hipGraphNode_t* nodes, size_t count) const noexcept {
    return api.StreamUpdateCaptureDependencies(stream, nodes, count, hipStreamSetCaptureDependencies);
  }
  hipError_t add_edges(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count) const noexcept {
    return api.GraphAddDependencies(graph, from, to, count);
  }
  hipError_t remove_edges(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count) const noexcept {
    return api.GraphRemoveDependencies(graph, from, to, count);
  }
};

inline Current::Current(const Context& context) noexcept : hip_(context.api) {
  switched_ = hip_.GetDevice(&previous_) != hipSuccess || previous_ != context.ordinal;
  if (switched_) static_cast<void>(hip_.SetDevice(context.ordinal));
}

using gpu::Call;
using gpu::check;
using gpu::Cold;
using gpu::Drain;

/// The context of an existing device, with this library's kernels loaded by the first call. Never released: objects may
/// refer to it forever.
const Context& primary(int32_t ordinal);

/// Leaves the device current on the calling thread.
void become_current(const Context& context);
/// The UUID of a visible device. See device.cc.
Uuid uuid_of(const Context& context, int32_t ordinal);
/// Classifies a pointer. See device.cc.
PointerInfo find_pointer(const Context& context, const uint8_t* pointer);

}  // namespace symmetra::device::hip
