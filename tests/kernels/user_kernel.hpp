// The user's own kernel of user_kernel.cuh on an NVIDIA GPU, whose platform cannot be in one source with the host's.
#pragma once
#include <cuda_runtime.h>

#include "symmetra/device/abi.hpp"

namespace trial {

/// Launches one block on the current device's default stream. The buffers start `offset_bytes` after the addresses of
/// `table`.
cudaError_t launch_user_kernel(const symmetra::device::SignalPad& pad, const symmetra::device::PeerTable* table, uint64_t offset_bytes,
                               uint32_t* sum, uint32_t count, uint32_t threads);

}  // namespace trial
