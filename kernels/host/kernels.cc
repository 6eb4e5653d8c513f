// The kernels compiled for the CPU: exchanges that only move bytes, and small ones.
#include "kernels/host/kernels.hpp"

#include "kernels/host/backend.hpp"

namespace symmetra::kernels::host {

Entry kernel(Kind kind, const void* args, const Geometry& geometry) noexcept { return kernels::kernel<Backend>(kind, args, geometry); }

}  // namespace symmetra::kernels::host
