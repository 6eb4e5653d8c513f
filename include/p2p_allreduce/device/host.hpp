/// \file
/// The CPU: enough of HIP's names that a program of this API runs without a GPU. A device is a set of streams. There
/// are as many devices as a group has ranks at most, so that ranks that are threads can have one each. Memory from
/// hipMalloc can be registered with other processes; memory from hipHostMalloc, malloc and the stack cannot.
///
/// Different from HIP: only Execute enqueues and returns. hipMemcpyAsync, hipMemsetAsync and hipEventRecord block until
/// their stream is done, including an earlier Execute. A rank that calls one of them before an action that other ranks
/// wait for, such as a barrier before their Execute, blocks all ranks until the deadline.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <ratio>
#include <string>
#include <unordered_map>
#include <utility>

#include "symmetra/device.hpp"
#include "symmetra/error.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace p2p_allreduce::detail {
inline namespace P2P_ALLREDUCE_ROOM {
struct HostEvent;
}
}  // namespace p2p_allreduce::detail

/// A stream of the CPU; null is the default stream of the current device.
using hipStream_t = const symmetra::Stream*;

/// A point in a stream's work.
using hipEvent_t = p2p_allreduce::detail::HostEvent*;

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidHandle = 400,
  hipErrorNotReady = 600,
  hipErrorUnknown = 999,
};

enum hipMemcpyKind {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
};

enum hipDataType {
  HIP_R_32F = 0,
  HIP_R_64F = 1,
  HIP_R_16F = 2,
  HIP_R_8I = 3,
  HIP_R_8U = 8,
  HIP_R_32I = 10,
  HIP_R_32U = 12,
  HIP_R_16BF = 14,
  HIP_R_64I = 24,
  HIP_R_64U = 26,
};

constexpr unsigned int hipStreamDefault = 0;
constexpr unsigned int hipStreamNonBlocking = 1;
constexpr unsigned int hipEventDefault = 0;
constexpr unsigned int hipEventDisableTiming = 2;
constexpr unsigned int hipHostMallocDefault = 0;

struct hipDeviceProp_t {
  char name[256];
};

namespace p2p_allreduce::detail {
inline namespace P2P_ALLREDUCE_ROOM {

/// A CPU device and its default stream.
struct HostDevice {
  symmetra::Device device = symmetra::Device::host();
  symmetra::Stream default_stream{device};
};

constexpr int kHostDevices = 16;

/// The calling thread's current device.
inline int& current_ordinal() {
  thread_local int ordinal = 0;
  return ordinal;
}

struct HostDevices {
  std::array<std::once_flag, kHostDevices> made;
  std::array<std::unique_ptr<HostDevice>, kHostDevices> devices;
};

/// The device with this ordinal, opened on first use.
inline const HostDevice& host_device(int ordinal) {
  // Never destroyed: the program may use one in a destructor that runs later.
  static HostDevices* const all = new HostDevices;
  const auto index = static_cast<std::size_t>(ordinal);
  std::call_once(all->made[index], [&] { all->devices[index] = std::make_unique<HostDevice>(); });
  return *all->devices[index];
}

/// The program's own device, so that the library knows memory from hipMalloc as memory of that device.
inline const symmetra::Device& open_device(int ordinal) { return host_device(ordinal).device; }

/// Memory from hipMalloc, by address, and the device that was current at each hipHostMalloc.
struct Allocations {
  std::mutex mutex;
  std::unordered_map<void*, symmetra::DeviceBuffer> buffers;
  std::unordered_map<void*, int> host;
};
inline Allocations& allocations() {
  // Never destroyed: the program may free in a destructor that runs later.
  static Allocations* const all = new Allocations;
  return *all;
}

/// A point in a stream's work. It has been reached when hipEventRecord returns, because that waits for all earlier work
/// of the stream.
struct HostEvent {
  std::chrono::steady_clock::time_point reached;
  bool recorded = false;
};

/// Runs work that may throw, and returns its error code.
template <class Work>
hipError_t code_of(Work work) noexcept {
  try {
    return work();
  } catch (const symmetra::Error& error) {
    return error.kind() == symmetra::ErrorKind::kOutOfMemory ? hipErrorOutOfMemory : hipErrorUnknown;
  } catch (...) {
    return hipErrorUnknown;
  }
}

/// The program's streams are the library's own.
class Streams {
 public:
  explicit Streams(int ordinal) : default_stream_(&host_device(ordinal).default_stream) {}
  const symmetra::Stream& of(hipStream_t stream) const { return stream == nullptr ? *default_stream_ : *stream; }

 private:
  const symmetra::Stream* default_stream_;
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce::detail

inline namespace P2P_ALLREDUCE_ROOM {

inline const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess:
      return "no error";
    case hipErrorInvalidValue:
      return "invalid argument";
    case hipErrorOutOfMemory:
      return "out of memory";
    case hipErrorInvalidDevice:
      return "invalid device ordinal";
    case hipErrorInvalidHandle:
      return "invalid resource handle";
    case hipErrorNotReady:
      return "not ready";
    case hipErrorUnknown:
      break;
  }
  return "unknown error";
}
/// Calls return their errors; none is stored.
inline hipError_t hipGetLastError() { return hipSuccess; }
inline hipError_t hipPeekAtLastError() { return hipSuccess; }

inline hipError_t hipGetDeviceCount(int* count) {
  if (count == nullptr) return hipErrorInvalidValue;
  *count = p2p_allreduce::detail::kHostDevices;
  return hipSuccess;
}
inline hipError_t hipSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= p2p_allreduce::detail::kHostDevices) return hipErrorInvalidDevice;
  p2p_allreduce::detail::current_ordinal() = ordinal;
  return hipSuccess;
}
inline hipError_t hipGetDevice(int* ordinal) {
  if (ordinal == nullptr) return hipErrorInvalidValue;
  *ordinal = p2p_allreduce::detail::current_ordinal();
  return hipSuccess;
}
/// The name is the CPU's.
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int ordinal) {
  using namespace p2p_allreduce::detail;
  if (properties == nullptr) return hipErrorInvalidValue;
  if (ordinal < 0 || ordinal >= kHostDevices) return hipErrorInvalidDevice;
  return code_of([&] {
    *properties = {};
    host_device(ordinal).device.name().copy(properties->name, sizeof properties->name - 1);
    return hipSuccess;
  });
}
/// All devices share one address space, so nothing needs to be enabled.
inline hipError_t hipDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  const auto valid = [](int number) { return number >= 0 && number < p2p_allreduce::detail::kHostDevices; };
  if (can == nullptr) return hipErrorInvalidValue;
  if (!valid(ordinal) || !valid(peer)) return hipErrorInvalidDevice;
  *can = ordinal != peer;
  return hipSuccess;
}
inline hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int) {
  return peer >= 0 && peer < p2p_allreduce::detail::kHostDevices ? hipSuccess : hipErrorInvalidDevice;
}
/// Blocks until all streams of the current device are done.
inline hipError_t hipDeviceSynchronize() {
  using namespace p2p_allreduce::detail;
  return code_of([] {
    host_device(current_ordinal()).device.synchronize();
    return hipSuccess;
  });
}

template <class T>
hipError_t hipMalloc(T** address, std::size_t bytes) {
  using namespace p2p_allreduce::detail;
  if (address == nullptr) return hipErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return hipSuccess;
  return code_of([&] {
    symmetra::DeviceBuffer buffer(open_device(current_ordinal()), bytes, symmetra::Dtype::kU8);
    void* const data = buffer.data();
    const std::lock_guard<std::mutex> lock(allocations().mutex);
    allocations().buffers.emplace(data, std::move(buffer));
    *address = static_cast<T*>(data);
    return hipSuccess;
  });
}
/// Waits for the device, which may still use the memory.
inline hipError_t hipFree(void* address) {
  using namespace p2p_allreduce::detail;
  if (address == nullptr) return hipSuccess;
  return code_of([&] {
    std::unique_lock<std::mutex> lock(allocations().mutex);
    const auto buffer = allocations().buffers.extract(address);
    lock.unlock();
    return buffer.empty() ? hipErrorInvalidValue : hipSuccess;
  });
}
/// Memory of the program alone, which Register refuses.
template <class T>
hipError_t hipHostMalloc(T** address, std::size_t bytes, unsigned int = hipHostMallocDefault) {
  using namespace p2p_allreduce::detail;
  if (address == nullptr) return hipErrorInvalidValue;
  *address = bytes == 0 ? nullptr : static_cast<T*>(std::malloc(bytes));
  if (*address == nullptr) return bytes == 0 ? hipSuccess : hipErrorOutOfMemory;
  return code_of([&] {
    const std::lock_guard<std::mutex> lock(allocations().mutex);
    allocations().host.emplace(*address, current_ordinal());
    return hipSuccess;
  });
}
/// Waits for the current device and for the device that was current at hipHostMalloc, which may still use the memory.
inline hipError_t hipHostFree(void* address) {
  using namespace p2p_allreduce::detail;
  if (address == nullptr) return hipSuccess;
  const hipError_t own = hipDeviceSynchronize();
  const hipError_t other = code_of([&] {
    std::unique_lock<std::mutex> lock(allocations().mutex);
    const auto found = allocations().host.extract(address);
    lock.unlock();
    if (!found.empty() && found.mapped() != current_ordinal()) host_device(found.mapped()).device.synchronize();
    return hipSuccess;
  });
  std::free(address);
  return own == hipSuccess ? other : own;
}
/// Blocks. Copies after all earlier work of the device.
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  if (bytes > 0 && (to == nullptr || from == nullptr)) return hipErrorInvalidValue;
  const hipError_t error = hipDeviceSynchronize();
  if (error == hipSuccess && bytes > 0) std::memmove(to, from, bytes);
  return error;
}
inline hipError_t hipMemset(void* to, int value, std::size_t bytes) {
  if (bytes > 0 && to == nullptr) return hipErrorInvalidValue;
  const hipError_t error = hipDeviceSynchronize();
  if (error == hipSuccess && bytes > 0) std::memset(to, value, bytes);
  return error;
}

inline hipError_t hipStreamCreate(hipStream_t* stream) {
  using namespace p2p_allreduce::detail;
  if (stream == nullptr) return hipErrorInvalidValue;
  return code_of([&] {
    *stream = new symmetra::Stream(host_device(current_ordinal()).device);
    return hipSuccess;
  });
}
inline hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int) { return hipStreamCreate(stream); }
inline hipError_t hipStreamDestroy(hipStream_t stream) {
  if (stream == nullptr) return hipErrorInvalidValue;
  delete stream;
  return hipSuccess;
}
inline hipError_t hipStreamQuery(hipStream_t stream) {
  using namespace p2p_allreduce::detail;
  return code_of([&] { return Streams(current_ordinal()).of(stream).done() ? hipSuccess : hipErrorNotReady; });
}
inline hipError_t hipStreamSynchronize(hipStream_t stream) {
  using namespace p2p_allreduce::detail;
  return code_of([&] {
    Streams(current_ordinal()).of(stream).synchronize();
    return hipSuccess;
  });
}
/// Blocks. Copies after earlier work of the stream; a copy that finishes early does no harm.
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t stream = nullptr) {
  if (bytes > 0 && (to == nullptr || from == nullptr)) return hipErrorInvalidValue;
  const hipError_t error = hipStreamSynchronize(stream);
  if (error == hipSuccess && bytes > 0) std::memmove(to, from, bytes);
  return error;
}
inline hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream = nullptr) {
  if (bytes > 0 && to == nullptr) return hipErrorInvalidValue;
  const hipError_t error = hipStreamSynchronize(stream);
  if (error == hipSuccess && bytes > 0) std::memset(to, value, bytes);
  return error;
}

inline hipError_t hipEventCreate(hipEvent_t* event) {
  if (event == nullptr) return hipErrorInvalidValue;
  *event = new (std::nothrow) p2p_allreduce::detail::HostEvent;
  return *event == nullptr ? hipErrorOutOfMemory : hipSuccess;
}
inline hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int) { return hipEventCreate(event); }
inline hipError_t hipEventDestroy(hipEvent_t event) {
  if (event == nullptr) return hipErrorInvalidHandle;
  delete event;
  return hipSuccess;
}
/// Blocks like hipMemcpyAsync: the event has been reached when this returns.
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr) {
  if (event == nullptr) return hipErrorInvalidHandle;
  const hipError_t error = hipStreamSynchronize(stream);
  if (error != hipSuccess) return error;
  event->reached = std::chrono::steady_clock::now();
  event->recorded = true;
  return hipSuccess;
}
inline hipError_t hipEventQuery(hipEvent_t event) { return event == nullptr ? hipErrorInvalidHandle : hipSuccess; }
inline hipError_t hipEventSynchronize(hipEvent_t event) { return hipEventQuery(event); }
inline hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t event, unsigned int = 0) { return hipEventQuery(event); }
/// Milliseconds between two recorded events.
inline hipError_t hipEventElapsedTime(float* elapsed_ms, hipEvent_t start, hipEvent_t stop) {
  if (elapsed_ms == nullptr) return hipErrorInvalidValue;
  if (start == nullptr || stop == nullptr || !start->recorded || !stop->recorded) return hipErrorInvalidHandle;
  *elapsed_ms = std::chrono::duration<float, std::milli>(stop->reached - start->reached).count();
  return hipSuccess;
}

}  // namespace P2P_ALLREDUCE_ROOM
