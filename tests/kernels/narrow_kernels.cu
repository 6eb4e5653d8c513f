#include "kernels/numeric/narrow.cuh"
#include "tests/kernels/narrow_kernels.hpp"

namespace trial {
namespace {

namespace narrow = symmetra::kernels::narrow;
namespace platform = symmetra::platform;

/// Counts the bit patterns of floats for which Format::pack is not Format::encode of both values.
template <class Format>
__global__ void count_packed(unsigned long long* wrong) {
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t bits = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; bits < uint64_t{1} << 32; bits += threads) {
    // An odd factor: the other value of the pair runs through all bit patterns too.
    const float low = platform::f32_of(static_cast<uint32_t>(bits));
    const float high = platform::f32_of(static_cast<uint32_t>(bits) * 2654435761u);
    if (Format::pack({low, high}) != (Format::encode(low) | Format::encode(high) << Format::kBits)) atomicAdd(wrong, 1);
  }
}

template <class Format>
cudaError_t count(unsigned long long* wrong) {
  count_packed<Format><<<4096, 256>>>(wrong);
  return cudaGetLastError();
}

__device__ bool differs(float value, uint32_t code) {
  const float expected = narrow::E4M3::decode(code);
  return expected == expected ? platform::bits_of(value) != platform::bits_of(expected) : value == value;
}

/// A thread a pair of codes.
__global__ void count_unpacked(unsigned long long* wrong) {
  const uint32_t codes = blockIdx.x * blockDim.x + threadIdx.x;
  const platform::Pair pair = narrow::E4M3::unpack(codes);
  if (differs(pair.low, codes & 0xFF) || differs(pair.high, codes >> 8)) atomicAdd(wrong, 1);
}

}  // namespace

cudaError_t count_e4m3(unsigned long long* wrong) { return count<narrow::E4M3>(wrong); }
cudaError_t count_e5m2(unsigned long long* wrong) { return count<narrow::E5M2>(wrong); }
cudaError_t count_e2m1(unsigned long long* wrong) { return count<narrow::E2M1>(wrong); }

cudaError_t count_e4m3_values(unsigned long long* wrong) {
  count_unpacked<<<256, 256>>>(wrong);
  return cudaGetLastError();
}

}  // namespace trial
