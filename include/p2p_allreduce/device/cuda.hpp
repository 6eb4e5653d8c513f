/// \file
/// NVIDIA GPUs: the names of HIP stand for those of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <string>

#include "p2p_allreduce/device/borrowed_streams.hpp"
#include "symmetra/device.hpp"
#include "symmetra/error.hpp"

using hipStream_t = cudaStream_t;
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
constexpr hipError_t hipErrorNotReady = cudaErrorNotReady;
constexpr hipMemcpyKind hipMemcpyHostToHost = cudaMemcpyHostToHost;
constexpr hipMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
constexpr hipMemcpyKind hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
constexpr hipMemcpyKind hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
constexpr hipMemcpyKind hipMemcpyDefault = cudaMemcpyDefault;
constexpr unsigned int hipStreamDefault = cudaStreamDefault;
constexpr unsigned int hipStreamNonBlocking = cudaStreamNonBlocking;

inline const char* hipGetErrorString(hipError_t error) { return cudaGetErrorString(error); }
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipGetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline hipError_t hipSetDevice(int ordinal) { return cudaSetDevice(ordinal); }
inline hipError_t hipGetDevice(int* ordinal) { return cudaGetDevice(ordinal); }
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
template <class T>
hipError_t hipMalloc(T** address, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(address), bytes);
}
inline hipError_t hipFree(void* address) { return cudaFree(address); }
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) { return cudaMemcpy(to, from, bytes, kind); }
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream = nullptr) {
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
inline hipError_t hipMemset(void* to, int value, std::size_t bytes) { return cudaMemset(to, value, bytes); }
inline hipError_t hipStreamCreate(hipStream_t* stream) { return cudaStreamCreate(stream); }
inline hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) { return cudaStreamCreateWithFlags(stream, flags); }
inline hipError_t hipStreamDestroy(hipStream_t stream) { return cudaStreamDestroy(stream); }
inline hipError_t hipStreamQuery(hipStream_t stream) { return cudaStreamQuery(stream); }
inline hipError_t hipStreamSynchronize(hipStream_t stream) { return cudaStreamSynchronize(stream); }

namespace p2p_allreduce::detail {

/// The device that is current to the calling thread. Throws kDevice.
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

}  // namespace p2p_allreduce::detail
