/// \file
/// User kernels on the host device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "symmetra/capture.hpp"
#if __cplusplus >= 202002L && !defined(__CUDACC__) && !defined(__HIP__)
#include "symmetra/device/platform/host.hpp"
#endif

namespace symmetra {

/// The blocks of a launch on the host device, and the threads of each block.
struct HostShape {
  std::uint32_t blocks = 1;   ///< 1 to 256
  std::uint32_t threads = 1;  ///< at least 1; 4096 at most in all blocks
};

namespace core {

/// The most bytes of a kernel's arguments.
constexpr std::size_t kMostArgs = 1024;

/// The place of a kernel's thread in its launch. In C++20, which the headers of symmetra/device need, this is the
/// program's own copy of the place that the library sets.
#if __cplusplus >= 202002L && !defined(__CUDACC__) && !defined(__HIP__)
struct PlacedThread {
  static void enter(const void* place) { platform::host::current = *static_cast<const platform::host::Thread*>(place); }
};
using LaunchedThread = PlacedThread;
#else
struct PlainThread {
  static void enter(const void*) {}
};
using LaunchedThread = PlainThread;
#endif

/// A kernel and its arguments, which a launch copies together.
template <class Args, class Thread>
struct Launched {
  void (*kernel)(const Args& args);
  Args args;
  static void run(const void* launched, const void* place) {
    const auto& self = *static_cast<const Launched*>(launched);
    Thread::enter(place);
    self.kernel(self.args);
  }
};

}  // namespace core

/// Runs a function with a copy of `bytes` bytes at `launched`, at most 1040, and with a platform::host::Thread: the callback of
/// `launch`. Throws kInvalidArgument for more bytes, and the errors of `launch`.
void launch_bytes(HostShape shape, void (*entry)(const void* launched, const void* place), const void* launched, std::size_t bytes,
                  Queue queue);

/// Runs a function of this process as a kernel of the host device, in the order of a stream or in a graph: each thread of each block
/// calls `kernel` with a copy of `args`. All blocks run at once. Enqueues and returns.
///
/// In C++20, with the headers of symmetra/device, the kernel gets its place from platform::thread() and
/// platform::block(), and 48 KiB of block-shared memory from platform::shared(). It must not throw. Memory that it
/// reaches through `args` must live until the work is done, or as long as a captured graph and its launches. On a GPU,
/// launch the kernel with the GPU's own runtime.
///
/// Throws kUnsupported on a GPU, and on a stream that Stream::capture records: launch on the Capture there; kInvalidArgument for a shape
/// outside its limits; kDevice if the launch fails.
template <class Args, class Thread = core::LaunchedThread>
void launch(HostShape shape, void (*kernel)(const Args& args), const Args& args, Queue queue) {
  using Launched = core::Launched<Args, Thread>;
  static_assert(std::is_trivially_copyable_v<Args>, "arguments of a kernel are copied as bytes");
  static_assert(sizeof(Args) <= core::kMostArgs, "a kernel takes at most 1024 bytes of arguments");
  static_assert(alignof(Args) <= 16, "arguments of a kernel are aligned to at most 16 bytes");
  const Launched launched{kernel, args};
  launch_bytes(shape, kernel == nullptr ? nullptr : &Launched::run, &launched, sizeof(launched), queue);
}

}  // namespace symmetra
