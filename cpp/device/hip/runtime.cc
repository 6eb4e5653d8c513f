#include "cpp/device/hip/runtime.hpp"

#include <dlfcn.h>

#include <string>

#include "symmetra/error.hpp"

namespace symmetra::device::hip {
namespace {

template <typename Function>
void load(void* library, Function& into, const char* symbol) {
  into = reinterpret_cast<Function>(dlsym(library, symbol));
  if (into == nullptr) {
    throw Error(ErrorKind::kUnsupported, std::string(kRuntimeLibrary) + " has no " + symbol + ": install a newer release of ROCm");
  }
}

Runtime load_all() {
  void* const library = dlopen(kRuntimeLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    throw Error(ErrorKind::kDevice, std::string("no HIP runtime: ") + (why != nullptr ? why : kRuntimeLibrary));
  }
  Runtime table{};
// The name is expanded before it is quoted: headers rename functions whose structures have changed.
#define SYMMETRA_HIP_QUOTED(name) #name
#define SYMMETRA_HIP_QUOTE(name) SYMMETRA_HIP_QUOTED(name)
#define SYMMETRA_HIP_LOAD(name) load(library, table.name, SYMMETRA_HIP_QUOTE(hip##name));
  SYMMETRA_GPU_FUNCTIONS(SYMMETRA_HIP_LOAD)
  SYMMETRA_HIP_FUNCTIONS(SYMMETRA_HIP_LOAD)
#undef SYMMETRA_HIP_LOAD
#undef SYMMETRA_HIP_QUOTE
#undef SYMMETRA_HIP_QUOTED
  return table;
}

}  // namespace

ErrorKind Runtime::kind_of(int32_t code) {
  switch (code) {
    case hipErrorOutOfMemory:
      return ErrorKind::kOutOfMemory;
    case hipErrorNotSupported:
    case hipErrorPeerAccessUnsupported:
    case hipErrorNoBinaryForGpu:
      return ErrorKind::kUnsupported;
    default:
      return ErrorKind::kDevice;
  }
}

const Runtime& runtime() {
  static const Runtime table = load_all();
  return table;
}

}  // namespace symmetra::device::hip
