#include <string>

#include "cpp/device/device.hpp"
#include "cpp/device/host/device.hpp"
#ifdef SYMMETRA_CUDA
#include "cpp/device/cuda/device.hpp"
#endif
#ifdef SYMMETRA_HIP
#include "cpp/device/hip/device.hpp"
#endif

namespace symmetra::device {

uint32_t count(uint32_t kind) noexcept {
  switch (kind) {
    case kKindHost:
      return host::count();
#ifdef SYMMETRA_CUDA
    case kKindCuda:
      return cuda::count();
#endif
#ifdef SYMMETRA_HIP
    case kKindHip:
      return hip::count();
#endif
    default:
      return 0;
  }
}

std::shared_ptr<Device> open(uint32_t kind, int32_t ordinal) {
  switch (kind) {
    case kKindHost:
      return host::open(ordinal);
#ifdef SYMMETRA_CUDA
    case kKindCuda:
      return cuda::open(ordinal);
#endif
#ifdef SYMMETRA_HIP
    case kKindHip:
      return hip::open(ordinal);
#endif
    default:
      throw Error(ErrorKind::kUnsupported, "device kind " + std::to_string(kind) + " is not built into this library");
  }
}

int32_t current(uint32_t kind) {
  switch (kind) {
#ifdef SYMMETRA_CUDA
    case kKindCuda:
      return cuda::current();
#endif
#ifdef SYMMETRA_HIP
    case kKindHip:
      return hip::current();
#endif
    default:
      throw Error(ErrorKind::kUnsupported, "device kind " + std::to_string(kind) + " has no current device in this library");
  }
}

}  // namespace symmetra::device
