// A HIP runtime over host memory, for two devices that compute nothing: memory is memory, streams run
// work at once, launches are written down. Built as libamdhip64.so and loaded by the room as the
// vendor's is; what it has no use for is in refused.c.
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include "tests/hip/memory_runtime.hpp"

#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

using symmetra::test::Ledger;

struct ihipStream_t {
  int device;
  bool capturing;
  std::vector<std::function<void()>> recorded;
  unsigned long long capture = 0;
  std::vector<hipGraphNode_t> tips;
};
struct ihipEvent_t {
  int recorded = 0;
};
struct ihipGraph {
  std::vector<std::function<void()>> work;
};
struct hipGraphExec {
  std::vector<std::function<void()>> work;
};
struct ihipModuleSymbol_t {
  std::string name;
  int device;
};

namespace {

struct Allocation {
  size_t bytes;
  int device;
  int fd;
};
std::map<void*, Allocation> allocations;
thread_local int current = 0;
thread_local hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
Ledger ledger;
hipGraphNode_t record = nullptr;
std::vector<hipGraphNode_t> before_record;

hipGraphNode_t new_node() {
  static uintptr_t nodes = 0;
  return reinterpret_cast<hipGraphNode_t>(++nodes);
}

/// The contents of an IPC handle of this runtime.
struct Exported {
  int pid;
  int fd;
  size_t bytes;
};

hipError_t allocate(void** to, size_t bytes) {
  const int fd = memfd_create("device memory", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return hipErrorOutOfMemory;
  *to = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  allocations[*to] = {bytes, current, fd};
  ledger.live += 1;
  return hipSuccess;
}

/// The allocation that holds an address.
std::map<void*, Allocation>::iterator find(const void* address) {
  auto found = allocations.upper_bound(const_cast<void*>(address));
  if (found == allocations.begin()) return allocations.end();
  --found;
  const auto* const start = static_cast<const char*>(found->first);
  return static_cast<const char*>(address) < start + found->second.bytes ? found : allocations.end();
}

/// Whether a bundle of code objects names this kernel. It begins with 24 bytes of magic and the number
/// of its entries, each offset, size, length of a name, name.
bool holds(const char* bundle, const std::string& kernel) {
  uint64_t entries, bytes = 0;
  std::memcpy(&entries, bundle + 24, sizeof(entries));
  for (const char* at = bundle + 32; entries-- != 0;) {
    uint64_t entry[3];
    std::memcpy(entry, at, sizeof(entry));
    bytes = std::max(bytes, entry[0] + entry[1]);
    at += sizeof(entry) + entry[2];
  }
  const std::string descriptor = kernel + ".kd";
  return memmem(bundle, bytes, descriptor.c_str(), descriptor.size() + 1) != nullptr;
}

hipError_t enqueue(hipStream_t stream, const std::function<void()>& work) {
  if (stream != nullptr && stream->capturing) {
    stream->recorded.push_back(work);
    stream->tips.assign(1, new_node());
  } else {
    work();
  }
  return hipSuccess;
}

}  // namespace

extern "C" {

const Ledger* symmetra_test_ledger() { return &ledger; }

hipError_t hipGetDeviceCount(int* count) { return *count = 2, hipSuccess; }
hipError_t hipGetDevice(int* device) { return *device = current, hipSuccess; }
hipError_t hipSetDevice(int device) { return current = device, hipSuccess; }
hipError_t hipGetLastError() { return hipSuccess; }
const char* hipGetErrorName(hipError_t code) { return code == hipErrorOutOfMemory ? "hipErrorOutOfMemory" : "hipErrorOther"; }
const char* hipGetErrorString(hipError_t) { return "words"; }
hipError_t hipDeviceGetName(char* name, int bytes, hipDevice_t device) {
  return std::snprintf(name, static_cast<size_t>(bytes), "memory %d", device), hipSuccess;
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  return std::memset(uuid->bytes, device + 1, sizeof(uuid->bytes)), hipSuccess;
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t) { return *bytes = size_t{1} << 30, hipSuccess; }
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t asked, int) {
  return *value = asked == hipDeviceAttributeWarpSize ? 64 : 9, hipSuccess;
}
hipError_t hipDriverGetVersion(int* version) { return *version = 50221153, hipSuccess; }
hipError_t hipRuntimeGetVersion(int* version) { return *version = 50221153, hipSuccess; }
hipError_t hipDeviceCanAccessPeer(int* answer, int, int) { return *answer = 1, hipSuccess; }
hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr asked, int, int) {
  return *value = asked == hipDevP2PAttrNativeAtomicSupported, hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int, unsigned int) {
  return ledger.peers_enabled++ == 0 ? hipSuccess : hipErrorPeerAccessAlreadyEnabled;
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) { return *free = *total = 7, hipSuccess; }

hipError_t hipMalloc(void** to, size_t bytes) { return bytes > size_t{1} << 40 ? hipErrorOutOfMemory : allocate(to, bytes); }
hipError_t hipExtMallocWithFlags(void** to, size_t bytes, unsigned int flags) { return ledger.flags = flags, allocate(to, bytes); }
hipError_t hipFree(void* address) {
  const auto found = allocations.find(address);
  if (found == allocations.end()) return hipErrorInvalidValue;
  munmap(address, found->second.bytes);
  close(found->second.fd);
  allocations.erase(found);
  ledger.live -= 1;
  return hipSuccess;
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address) {
  const auto found = find(address);
  if (found == allocations.end()) return hipErrorInvalidValue;
  *attributes = {};
  attributes->memoryType = hipMemoryTypeDevice;
  attributes->device = found->second.device;
  return hipSuccess;
}
hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes, hipDeviceptr_t address) {
  const auto found = find(address);
  if (found == allocations.end()) return hipErrorInvalidValue;
  *base = found->first;
  *bytes = found->second.bytes;
  return hipSuccess;
}
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* address) {
  const auto found = allocations.find(address);
  if (found == allocations.end()) return hipErrorInvalidValue;
  const Exported exported{getpid(), found->second.fd, found->second.bytes};
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &exported, sizeof(exported));
  return hipSuccess;
}
hipError_t hipIpcOpenMemHandle(void** to, hipIpcMemHandle_t handle, unsigned int) {
  Exported exported;
  std::memcpy(&exported, &handle, sizeof(exported));
  if (exported.pid == getpid()) return hipErrorInvalidValue;  // as the vendor's does
  const std::string path = "/proc/" + std::to_string(exported.pid) + "/fd/" + std::to_string(exported.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return hipErrorInvalidValue;
  *to = mmap(nullptr, exported.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  allocations[*to] = {exported.bytes, current, fd};
  ledger.live += 1;
  return hipSuccess;
}
hipError_t hipIpcCloseMemHandle(void* address) { return hipFree(address); }

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* exchanged) { return std::swap(mode, *exchanged), hipSuccess; }
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int) {
  return *stream = new ihipStream_t{current, false, {}}, hipSuccess;
}
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 1, *greatest = -1, hipSuccess; }
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int) { return hipStreamCreateWithFlags(stream, flags); }
hipError_t hipStreamDestroy(hipStream_t stream) { return delete stream, hipSuccess; }
hipError_t hipStreamQuery(hipStream_t) { return hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
int hipGetStreamDeviceId(hipStream_t stream) { return stream->device; }
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  return *status = stream->capturing ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone, hipSuccess;
}
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return enqueue(stream, [=] { std::memset(to, value, bytes); });
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  return enqueue(stream, [=] { std::fill_n(static_cast<int*>(to), count, value); });
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int) { return *event = new ihipEvent_t, hipSuccess; }
hipError_t hipEventDestroy(hipEvent_t event) { return delete event, hipSuccess; }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t) { return event->recorded++, hipSuccess; }
hipError_t hipEventQuery(hipEvent_t event) { return event->recorded % 2 == 0 ? hipSuccess : hipErrorNotReady; }
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned int) { return hipSuccess; }

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  static unsigned long long captures = 0;
  stream->tips.clear();
  stream->capture = ++captures;
  return stream->capturing = true, hipSuccess;
}
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id, hipGraph_t* graph,
                                      const hipGraphNode_t** tips, size_t* count) {
  *id = stream->capture;
  *graph = nullptr;
  *tips = stream->tips.data();
  *count = stream->tips.size();
  return hipStreamIsCapturing(stream, status);
}
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t* nodes, size_t count, unsigned int flags) {
  if (flags == hipStreamSetCaptureDependencies) {
    stream->tips.clear();
  } else {
    ledger.captured.added += static_cast<int>(count);
  }
  stream->tips.insert(stream->tips.end(), nodes, nodes + count);
  return hipSuccess;
}
hipError_t hipGraphAddEventWaitNode(hipGraphNode_t* node, hipGraph_t, const hipGraphNode_t*, size_t, hipEvent_t) {
  ledger.captured.waits += 1;
  return *node = new_node(), hipSuccess;
}
hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t, const hipGraphNode_t* from, size_t count, hipEvent_t) {
  ledger.captured.records += 1;
  before_record.assign(from, from + count);
  ledger.captured.before = static_cast<int>(count);
  return *node = record = new_node(), hipSuccess;
}
// All edges that are added or removed lead to the node that records.
hipError_t hipGraphAddDependencies(hipGraph_t, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count) {
  if (std::count(to, to + count, record) != static_cast<std::ptrdiff_t>(count)) return hipErrorInvalidValue;
  before_record.insert(before_record.end(), from, from + count);
  return ledger.captured.before = static_cast<int>(before_record.size()), hipSuccess;
}
hipError_t hipGraphRemoveDependencies(hipGraph_t, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t count) {
  for (size_t edge = 0; edge < count; ++edge) {
    const auto found = std::find(before_record.begin(), before_record.end(), from[edge]);
    if (found == before_record.end() || to[edge] != record) return hipErrorInvalidValue;
    before_record.erase(found);
  }
  return ledger.captured.before = static_cast<int>(before_record.size()), hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  stream->capturing = false;
  *graph = new ihipGraph{std::move(stream->recorded)};
  stream->recorded.clear();
  return hipSuccess;
}
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t*, char*, size_t) {
  return *exec = new hipGraphExec{graph->work}, hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t) {
  for (const auto& work : exec->work) work();
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) { return delete graph, hipSuccess; }
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) { return delete exec, hipSuccess; }

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  ledger.bundled = std::memcmp(image, "__CLANG_OFFLOAD_BUNDLE__", 24) == 0;
  ledger.modules += 1;
  *module = reinterpret_cast<hipModule_t>(const_cast<void*>(image));
  return hipSuccess;
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  if (!holds(reinterpret_cast<const char*>(module), name)) return hipErrorNotFound;
  return *function = new ihipModuleSymbol_t{name, current}, hipSuccess;
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int blocks, unsigned int, unsigned int, unsigned int threads,
                                 unsigned int, unsigned int, unsigned int shared_bytes, hipStream_t stream, void** args, void**) {
  static std::string name;
  name = function->name;
  ledger.launch = {name.c_str(), function->device, blocks, threads, shared_bytes, stream, {}};
  std::memcpy(ledger.launch.args, args[0], sizeof(ledger.launch.args));
  return hipSuccess;
}

}  // extern "C"
