// The kernels compiled for the CPU, as the host device calls them.
#pragma once
#include <algorithm>

#include "kernels/args.hpp"

namespace symmetra::kernels::host {

/// The size of the argument block of a kind; 0 where there is no such kind.
constexpr size_t args_bytes(Kind kind) {
  switch (kind) {
#define LAUNCH(name, Args, bytes) \
  case Kind::name:                \
    return bytes;
#include "kernels/launches.def"
#undef LAUNCH
  }
  return 0;
}

/// Room for the argument block of any kind.
constexpr size_t kMostArgsBytes = std::max<size_t>({
#define LAUNCH(name, Args, bytes) bytes,
#include "kernels/launches.def"
#undef LAUNCH
});

/// One device thread's run of a kernel. The caller has set platform::host::current.
using Entry = void (*)(const void* args);

/// The kernel of a launch, to be called with these `args`, the argument block of `kind`. nullptr where there is
/// none, or where the launch does not fit what kernels take for granted.
Entry kernel(Kind kind, const void* args, const Geometry& geometry) noexcept;

}  // namespace symmetra::kernels::host
