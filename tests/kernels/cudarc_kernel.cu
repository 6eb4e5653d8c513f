// A kernel of a caller's, without the library's host code: tests/suite/cudarc.rs loads it by cudarc.
#include "symmetra/device/heap.cuh"

using namespace symmetra;

/// Puts `count` words to the next rank, and copies the words that the previous rank has put here to `got`. Run by one block.
extern "C" __global__ void pass_on(const __grid_constant__ device::Heap heap, const uint32_t* from, uint32_t* to, uint32_t* got,
                                   uint32_t count) {
  const uint32_t rank = heap.signals.rank, world = heap.signals.world;
  const uint32_t next = (rank + 1) % world, previous = (rank + world - 1) % world;
  // The next rank has read the words of the previous launch.
  if (!device::barrier(heap.signals, device::Channel{0})) return;
  device::put_signal(heap, to, from, device::Rank{next}, count * sizeof(uint32_t), device::Channel{1});
  if (!device::wait_signal(heap, device::Rank{previous}, device::Channel{1})) return;
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) got[i] = to[i];
}
