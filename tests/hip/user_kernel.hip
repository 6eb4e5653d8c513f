// A user's own kernel for AMD GPUs; `.ci/hip` compiles it.
#include "tests/kernels/user_kernel.cuh"

extern "C" __attribute__((global)) void user_kernel(symmetra::device::SignalPad pad, const symmetra::device::PeerTable* table,
                                                    uint64_t offset_bytes, uint32_t* sum, uint32_t count) {
  trial::meet_neighbours(pad, symmetra::device::PeerView<uint32_t>(table, offset_bytes, pad.rank, pad.world), sum, count);
}
