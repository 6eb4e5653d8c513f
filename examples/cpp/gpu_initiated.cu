// The kernels of gpu_initiated.cuh on NVIDIA GPUs, by ranks that are processes: `symmetra launch -n RANKS -- gpu_initiated
// [--time]`. --time also times the all-gather and compares it with the library's.
#include <cuda_runtime.h>

#include <cstdlib>
#include <iostream>

#include "gpu_initiated.hpp"

using namespace symmetra;

namespace {

template <class Call>
__global__ void kernel(const __grid_constant__ example::Work work) {
  Call::run(work);
}

/// Few enough blocks that all run at once, as blocks that wait for each other must: more for large shares, which fill the links.
struct Launch {
  template <class Call>
  void operator()(Call, const example::Work& work, const Queue&, const Stream& stream) const {
    const bool large = work.count >= 1 << 16;
    kernel<Call><<<large ? 64 : 8, large ? 256 : 128, 0, static_cast<cudaStream_t>(stream.native())>>>(work);
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) {
      throw Error(ErrorKind::kDevice, cudaGetErrorString(code), code);
    }
  }
};

}  // namespace

int main(int count, char** words) try {
  constexpr int kOperations = 200;
  const bool times = count > 1 && example::asks_for_time(words[1]);
  const char* const local = std::getenv("LOCAL_RANK");
  const int ordinal = local == nullptr ? 0 : std::atoi(local);
  if (cudaSetDevice(ordinal) != cudaSuccess) throw Error(ErrorKind::kDevice, "no GPU " + std::to_string(ordinal));
  const auto bootstrap = bootstrap::tcp_from_env();
  return example::run(*bootstrap, Device::cuda(static_cast<std::size_t>(ordinal)), Launch{}, times ? kOperations : 0) ? 0 : 1;
} catch (const Error& error) {
  std::cerr << std::string(error.what()) + "\n";
  return 1;
}
