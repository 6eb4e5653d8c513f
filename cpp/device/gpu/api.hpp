// The parts of a vendor's runtime that this folder uses. CUDA and HIP names differ only in their first letters, so each backend makes its
// `Api` from these lists: a struct with the types, the constants, and the functions as members.
//
// A backend's `Context` is one device. In addition to `Api`, `api` and `ordinal` it has the parts that differ between vendors:
//   bool ready() const                  whether the device can be queried for its memory
//   Stream_t legacy(), per_thread()     the default streams
//   int usual_priority(int least)       of a stream that is not urgent, given the least priority
//   int32_t device_of(Stream_t) const   the device of a stream; throws if the runtime refuses
//   Error_t instantiate(GraphExec_t*, Graph_t) const
//   Error_t launch(Stream_t, Kind, const void* args, const Geometry&) const
//   Error_t store(Stream_t, uint32_t* word, uint32_t value) const
//   uint64_t stream_id(Stream_t) const  0 if the runtime gives streams no numbers
//   Error_t recorder(Stream_t, Recorder<Context>*) const
//   Error_t add_tips(Stream_t, GraphNode_t*, size_t) const, set_tips(...)   the nodes for which later work of a captured stream waits
//   Error_t add_edges(Graph_t, const GraphNode_t* from, const GraphNode_t* to, size_t) const, remove_edges(...)
// and a `Current` that makes the device current on the thread for a scope. See also graph.hpp and device.hpp.
#pragma once

// clang-format off
#define SYMMETRA_GPU_TYPES(each) \
  each(Error_t) each(Event_t) each(Graph_t) each(GraphExec_t) each(GraphNode_t) each(IpcMemHandle_t) each(Stream_t) each(StreamCaptureMode) \
  each(StreamCaptureStatus)

#define SYMMETRA_GPU_CONSTANTS(each) \
  each(DevP2PAttrNativeAtomicSupported) each(ErrorInvalidResourceHandle) each(ErrorNotReady) each(ErrorPeerAccessAlreadyEnabled) each(EventDefault) \
  each(EventDisableTiming) each(HostRegisterMapped) each(HostRegisterPortable) each(IpcMemLazyEnablePeerAccess) each(MemcpyDefault) \
  each(StreamCaptureModeRelaxed) each(StreamCaptureModeThreadLocal) each(StreamCaptureStatusNone) each(StreamNonBlocking) \
  each(Success)

#define SYMMETRA_GPU_FUNCTIONS(each) \
  each(DeviceCanAccessPeer) each(DeviceEnablePeerAccess) each(DeviceGetP2PAttribute) each(DeviceGetStreamPriorityRange) each(DriverGetVersion) \
  each(EventCreateWithFlags) each(EventDestroy) each(EventElapsedTime) each(EventQuery) each(EventRecord) \
  each(EventSynchronize) each(Free) each(GetDeviceCount) each(GetErrorName) each(GetErrorString) each(GetLastError) \
  each(GraphAddEventRecordNode) each(GraphAddEventWaitNode) each(GraphDestroy) each(GraphExecDestroy) each(GraphInstantiate) each(GraphLaunch) each(HostGetDevicePointer) \
  each(HostRegister) each(HostUnregister) each(IpcCloseMemHandle) each(IpcGetMemHandle) each(IpcOpenMemHandle) \
  each(Malloc) each(MemcpyAsync) each(MemGetInfo) each(MemsetAsync) each(RuntimeGetVersion) each(StreamBeginCapture) \
  each(StreamCreateWithFlags) each(StreamCreateWithPriority) each(StreamDestroy) each(StreamEndCapture) \
  each(StreamIsCapturing) each(StreamQuery) each(StreamSynchronize) each(StreamWaitEvent) each(ThreadExchangeStreamCaptureMode)
// clang-format on
