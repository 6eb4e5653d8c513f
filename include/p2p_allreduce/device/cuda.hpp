/// \file
/// NVIDIA GPUs: HIP's names as aliases of the CUDA runtime's.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <string>

#include "p2p_allreduce/device/borrowed_streams.hpp"
#include "symmetra/device.hpp"
#include "symmetra/error.hpp"

using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipDeviceProp_t = cudaDeviceProp;
using hipError_t = cudaError_t;
using hipMemcpyKind = cudaMemcpyKind;
using hipDataType = cudaDataType_t;

constexpr hipDataType HIP_R_32F = CUDA_R_32F;
constexpr hipDataType HIP_R_64F = CUDA_R_64F;
constexpr hipDataType HIP_R_16F = CUDA_R_16F;
constexpr hipDataType HIP_R_16BF = CUDA_R_16BF;
constexpr hipDataType HIP_R_8I = CUDA_R_8I;
constexpr hipDataType HIP_R_8U = CUDA_R_8U;
constexpr hipDataType HIP_R_32I = CUDA_R_32I;
constexpr hipDataType HIP_R_32U = CUDA_R_32U;
constexpr hipDataType HIP_R_64I = CUDA_R_64I;
constexpr hipDataType HIP_R_64U = CUDA_R_64U;

constexpr hipError_t hipSuccess = cudaSuccess;
constexpr hipError_t hipErrorInvalidValue = cudaErrorInvalidValue;
constexpr hipError_t hipErrorOutOfMemory = cudaErrorMemoryAllocation;
constexpr hipError_t hipErrorInvalidDevice = cudaErrorInvalidDevice;
constexpr hipError_t hipErrorInvalidHandle = cudaErrorInvalidResourceHandle;
constexpr hipError_t hipErrorNotReady = cudaErrorNotReady;
constexpr hipError_t hipErrorUnknown = cudaErrorUnknown;
constexpr hipMemcpyKind hipMemcpyHostToHost = cudaMemcpyHostToHost;
constexpr hipMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
constexpr hipMemcpyKind hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
constexpr hipMemcpyKind hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
constexpr hipMemcpyKind hipMemcpyDefault = cudaMemcpyDefault;
constexpr unsigned int hipStreamDefault = cudaStreamDefault;
constexpr unsigned int hipStreamNonBlocking = cudaStreamNonBlocking;
constexpr unsigned int hipEventDefault = cudaEventDefault;
constexpr unsigned int hipEventDisableTiming = cudaEventDisableTiming;
constexpr unsigned int hipHostMallocDefault = cudaHostAllocDefault;

inline namespace P2P_ALLREDUCE_ROOM {

inline const char* hipGetErrorString(hipError_t error) { return cudaGetErrorString(error); }
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipPeekAtLastError() { return cudaPeekAtLastError(); }
inline hipError_t hipGetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline hipError_t hipSetDevice(int ordinal) { return cudaSetDevice(ordinal); }
inline hipError_t hipGetDevice(int* ordinal) { return cudaGetDevice(ordinal); }
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int ordinal) { return cudaGetDeviceProperties(properties, ordinal); }
inline hipError_t hipDeviceCanAccessPeer(int* can, int ordinal, int peer) { return cudaDeviceCanAccessPeer(can, ordinal, peer); }
inline hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) { return cudaDeviceEnablePeerAccess(peer, flags); }
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
template <class T>
hipError_t hipMalloc(T** address, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(address), bytes);
}
inline hipError_t hipFree(void* address) { return cudaFree(address); }
template <class T>
hipError_t hipHostMalloc(T** address, std::size_t bytes, unsigned int flags = hipHostMallocDefault) {
  return cudaHostAlloc(reinterpret_cast<void**>(address), bytes, flags);
}
inline hipError_t hipHostFree(void* address) { return cudaFreeHost(address); }
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) { return cudaMemcpy(to, from, bytes, kind); }
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream = nullptr) {
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
inline hipError_t hipMemset(void* to, int value, std::size_t bytes) { return cudaMemset(to, value, bytes); }
inline hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream = nullptr) {
  return cudaMemsetAsync(to, value, bytes, stream);
}
inline hipError_t hipStreamCreate(hipStream_t* stream) { return cudaStreamCreate(stream); }
inline hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) { return cudaStreamCreateWithFlags(stream, flags); }
inline hipError_t hipStreamDestroy(hipStream_t stream) { return cudaStreamDestroy(stream); }
inline hipError_t hipStreamQuery(hipStream_t stream) { return cudaStreamQuery(stream); }
inline hipError_t hipStreamSynchronize(hipStream_t stream) { return cudaStreamSynchronize(stream); }
inline hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags = 0) {
  return cudaStreamWaitEvent(stream, event, flags);
}
inline hipError_t hipEventCreate(hipEvent_t* event) { return cudaEventCreate(event); }
inline hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags) { return cudaEventCreateWithFlags(event, flags); }
inline hipError_t hipEventDestroy(hipEvent_t event) { return cudaEventDestroy(event); }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr) { return cudaEventRecord(event, stream); }
inline hipError_t hipEventQuery(hipEvent_t event) { return cudaEventQuery(event); }
inline hipError_t hipEventSynchronize(hipEvent_t event) { return cudaEventSynchronize(event); }
inline hipError_t hipEventElapsedTime(float* elapsed_ms, hipEvent_t start, hipEvent_t stop) {
  return cudaEventElapsedTime(elapsed_ms, start, stop);
}

}  // namespace P2P_ALLREDUCE_ROOM

namespace p2p_allreduce::detail {
inline namespace P2P_ALLREDUCE_ROOM {

/// The calling thread's current device. Throws kDevice.
inline int current_ordinal() {
  int ordinal = 0;
  const cudaError_t error = cudaGetDevice(&ordinal);
  if (error == cudaSuccess) return ordinal;
  throw symmetra::Error(symmetra::ErrorKind::kDevice, std::string("cudaGetDevice: ") + cudaGetErrorString(error), error);
}

inline symmetra::Device open_device(int ordinal) { return symmetra::Device::cuda(static_cast<std::size_t>(ordinal)); }

class Streams : public BorrowedStreams<hipStream_t> {
 public:
  explicit Streams(int ordinal) : BorrowedStreams(open_device(ordinal)) {}
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce::detail
