/// \file
/// AMD GPUs: HIP's own names.
#pragma once

#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <hip/library_types.h>

#include <string>

#include "p2p_allreduce/device/borrowed_streams.hpp"
#include "symmetra/device.hpp"
#include "symmetra/error.hpp"

#if HIP_VERSION_MAJOR < 6
// Older releases define only three floating types; these numbers are those of later releases.
const hipDataType HIP_R_8I = static_cast<hipDataType>(3);
const hipDataType HIP_R_8U = static_cast<hipDataType>(8);
const hipDataType HIP_R_32I = static_cast<hipDataType>(10);
const hipDataType HIP_R_32U = static_cast<hipDataType>(12);
const hipDataType HIP_R_16BF = static_cast<hipDataType>(14);
const hipDataType HIP_R_64I = static_cast<hipDataType>(24);
const hipDataType HIP_R_64U = static_cast<hipDataType>(26);
#endif

namespace p2p_allreduce::detail {
inline namespace P2P_ALLREDUCE_ROOM {

/// The calling thread's current device. Throws kDevice.
inline int current_ordinal() {
  int ordinal = 0;
  const hipError_t error = hipGetDevice(&ordinal);
  if (error == hipSuccess) return ordinal;
  throw symmetra::Error(symmetra::ErrorKind::kDevice, std::string("hipGetDevice: ") + hipGetErrorString(error), error);
}

inline symmetra::Device open_device(int ordinal) { return symmetra::Device::hip(static_cast<std::size_t>(ordinal)); }

class Streams : public BorrowedStreams<hipStream_t> {
 public:
  explicit Streams(int ordinal) : BorrowedStreams(open_device(ordinal)) {}
};

}  // namespace P2P_ALLREDUCE_ROOM
}  // namespace p2p_allreduce::detail
