// The basic program of the API: ranks that meet by MPI sum a million floats.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

#include "p2p_allreduce.hpp"

using namespace p2p_allreduce;

int main() {
  MPIBootstrap bootstrap;
  bootstrap.Initialize();
  const int rank = bootstrap.GetRank(), ranks = bootstrap.GetWorldSize();
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess || hipSetDevice(rank % devices) != hipSuccess) return 1;

  const size_t count = 1024 * 1024;
  float *input = nullptr, *output = nullptr;
  if (hipMalloc(&input, count * sizeof(float)) != hipSuccess || hipMalloc(&output, count * sizeof(float)) != hipSuccess) return 1;
  std::vector<float> values(count, static_cast<float>(rank + 1));
  if (hipMemcpy(input, values.data(), count * sizeof(float), hipMemcpyHostToDevice) != hipSuccess) return 1;

  SymmMemManager memory(bootstrap);
  AllReduce all_reduce(bootstrap, memory);
  all_reduce.Execute(input, output, count, HIP_R_32F, ReduceOp::SUM);

  if (hipMemcpy(values.data(), output, count * sizeof(float), hipMemcpyDeviceToHost) != hipSuccess) return 1;
  const float expected = static_cast<float>(ranks * (ranks + 1) / 2);
  size_t wrong = 0;
  for (const float value : values) wrong += value != expected;
  std::printf("rank %d of %d: %zu of %zu wrong\n", rank, ranks, wrong, count);

  const bool freed = hipFree(input) == hipSuccess && hipFree(output) == hipSuccess;
  bootstrap.Finalize();
  return wrong == 0 && freed ? 0 : 1;
}
