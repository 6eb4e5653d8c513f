// The HIP runtime as the backend loads it, on a machine that has the library and no device.
#include "cpp/device/hip/runtime.hpp"

#include <cstdio>
#include <cstdlib>

#include "symmetra/error.hpp"

namespace hip = symmetra::device::hip;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

int main() {
  try {
    const hip::Runtime& runtime = hip::runtime();
    // All functions were found, each is the library's, and the release is that of the headers.
#define CHECK_LOADED(function) CHECK(runtime.function != nullptr);
    SYMMETRA_GPU_FUNCTIONS(CHECK_LOADED)
    SYMMETRA_HIP_FUNCTIONS(CHECK_LOADED)
#undef CHECK_LOADED
    CHECK(&hip::runtime() == &runtime);
    int devices = -1;
    const hipError_t code = runtime.GetDeviceCount(&devices);
    CHECK(code == hipSuccess || code == hipErrorNoDevice);
    std::printf("hip runtime: loaded %s, %s\n", hip::kRuntimeLibrary, runtime.GetErrorString(code));
  } catch (const symmetra::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
