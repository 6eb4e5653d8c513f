// The kernels whose waits bench/safety.cu compares; compiled twice by bench/build.sh, with and without
// SYMMETRA_UNBOUNDED_WAITS, each time in a namespace of its own and under another NAME.
#include "kernels/all_reduce/one_shot.cuh"

/// One-shot of bf16 by sentinel packets; null for a world that it is not compiled for.
extern "C" const void* NAME(unsigned world) {
  using namespace symmetra::kernels;
  if (world == 2) return reinterpret_cast<const void*>(&one_shot<Sentinel<Sum<BF16>>, 2>);
  if (world == 4) return reinterpret_cast<const void*>(&one_shot<Sentinel<Sum<BF16>>, 4>);
  if (world == 8) return reinterpret_cast<const void*>(&one_shot<Sentinel<Sum<BF16>>, 8>);
  return nullptr;
}
