// The differences between releases of ROCm. The library is built for the headers that are installed, and loads the
// runtime of their major release, whose structures and numbers they describe.
#pragma once

// Disables the C++ templates, whose overloads would make the addresses of the C functions ambiguous.
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>

#include <cstdint>

namespace symmetra::device::hip {

constexpr const char* kRuntimeLibrary =
#if HIP_VERSION_MAJOR >= 7
    "libamdhip64.so.7";
#elif HIP_VERSION_MAJOR == 6
    "libamdhip64.so.6";
#else
    "libamdhip64.so.5";
#endif

template <class Attributes>
hipMemoryType memory_type(const Attributes& attributes) {
  if constexpr (requires { attributes.memoryType; }) {
    return attributes.memoryType;
  } else {
    return attributes.type;
  }
}

/// hipStreamLegacy, which older headers lack.
inline hipStream_t legacy_stream() { return reinterpret_cast<hipStream_t>(1); }

/// Plain device memory that peers may write while a kernel reads it.
#ifdef hipDeviceMallocUncached
constexpr unsigned int kSharedFlags = hipDeviceMallocUncached;
#else
constexpr unsigned int kSharedFlags = hipDeviceMallocFinegrained;
#endif

/// Whether physical memory (hipMemCreate) can be uncached. In older releases the owning device caches it, and would
/// read old values after a peer has written.
#if HIP_VERSION_MAJOR > 7 || (HIP_VERSION_MAJOR == 7 && HIP_VERSION_MINOR >= 2)
constexpr bool kPhysicalIsShareable = true;
#else
constexpr bool kPhysicalIsShareable = false;
#endif

template <class Properties>
void ask_for_descriptor(Properties& properties) {
  if constexpr (requires { properties.requestedHandleTypes; }) {
    properties.requestedHandleTypes = hipMemHandleTypePosixFileDescriptor;
  } else {
    properties.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
  }
}

/// hipMemAllocationTypeUncached, which older headers lack.
constexpr auto kUncached = static_cast<hipMemAllocationType>(0x40000000);

}  // namespace symmetra::device::hip
