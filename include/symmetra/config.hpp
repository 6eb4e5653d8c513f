/// \file
/// Settings of a group.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "symmetra/types.hpp"

namespace symmetra {

/// Deadlines. An operation that exceeds one fails with a timeout. 1 ms to 24 h; others are refused before the ranks meet.
struct Deadlines {
  /// Opening, splitting and closing a group, and every host-side exchange. Default 120 s.
  std::chrono::milliseconds open;
  /// A wait inside the group's first operation, when a peer may still load or compile. Default 120 s.
  std::chrono::milliseconds first_use;
  /// A wait inside any later operation. Default 30 s.
  std::chrono::milliseconds steady;
};

/// The guarantee for the bits of a floating-point result, for given inputs and world size. Each level includes the
/// guarantee of the level before. Integer results are exact at each level. Only multicast (Config::multicast) needs
/// less than kPerAlgorithm. Without multicast, the two lower levels behave like kPerAlgorithm.
enum class Determinism : std::uint32_t {
  kFree = 0,    ///< no guarantee: the bits may differ from rank to rank and from run to run
  kPerRun = 1,  ///< the bits are equal on all ranks, but may differ from run to run
  /// The bits depend on the algorithm, and so on size and memory; with kRing also on an element's position in the
  /// message. They are equal on all ranks and in every run.
  kPerAlgorithm = 2,
  kExact = 3,  ///< the bits depend on nothing else: sums in rank order, rounded once; algorithms that cannot guarantee
               ///< this are refused
};

/// Whether a group opens multicast: one address for the memory of all ranks, at which the switch between GPUs sums and
/// stores. Needs the feature `multicast`, and on GPUs the environment variable SYMMETRA_MULTICAST=1, because multicast
/// has only been run on the host device.
enum class Multicast : std::uint32_t {
  kOff = 0,      ///< no multicast
  kTry = 1,      ///< multicast if every rank can open it, otherwise none
  kRequire = 2,  ///< multicast; opening throws kUnsupported on all ranks if multicast is not available
};

/// The settings of a communicator. All settings except silence, hold_after_failure and graph_mixing must be equal on
/// all ranks: a difference throws kMismatch on every rank. A value outside its limits throws kInvalidArgument, and
/// kPeer on the other ranks.
struct Config {
  /// The library's defaults.
  Config();
  /// Settings of a communicator for the all-reduces of one class, such as a custom all-reduce of an engine: at most 16 MiB for 8
  /// ranks, of which 2 MiB are heap. The limits of one launch are lower, so longer messages of memory that peers cannot address take
  /// more launches. Messages in symmetric, adopted or registered memory from some 100 KiB on need no scratch and lose nothing.
  static Config small();

  Deadlines deadlines;
  /// Size in bytes of the heap for symmetric buffers. Default 64 MiB.
  std::uint64_t heap_bytes;
  /// Channels of the signals between user kernels: see Communicator::heap. A channel takes 12 bytes for each rank. 0 to
  /// 65536; default 256.
  std::uint32_t heap_channels;
  /// Largest message in bytes of one one-shot LL call; larger messages take several calls. Exchanges by LL packets move
  /// the same number of bytes between two ranks in a round. 1 KiB to 512 MiB; default 256 KiB.
  std::uint64_t one_shot_ll_bytes;
  /// Largest message in bytes of one one-shot call with sentinels; exchanges by sentinel packets move the same number
  /// of bytes between two ranks in a launch. 1 KiB to 512 MiB. Unset, the default, is 16 MiB / (world size squared),
  /// clamped to 256 KiB..4 MiB.
  std::optional<std::uint64_t> one_shot_sentinel_bytes;
  /// Largest message in bytes of one two-shot LL call, 1 KiB to 512 MiB. Default 1 MiB.
  std::uint64_t two_shot_ll_bytes;
  /// Largest message in bytes of one two-shot call with sentinels, 1 KiB to 512 MiB. Default 6.5 MiB.
  std::uint64_t two_shot_sentinel_bytes;
  /// Scratch of the ring in bytes, 4 KiB to 32 GiB. It holds queues that a message of any size passes through; larger
  /// queues pass larger chunks. Default 16 MiB.
  std::uint64_t ring_bytes;
  /// Largest message in bytes of one call by recursive doubling, 1 KiB to 512 MiB. Default 64 KiB.
  std::uint64_t recursive_doubling_bytes;
  /// Scratch in bytes for messages from each other rank, 4 KiB to 512 MiB: see Collectives::pairs. It holds queues that a
  /// message of any size passes through; larger queues pass larger pieces. Default 512 KiB.
  std::uint64_t pair_bytes;
  /// The guarantee for the bits of a result. Default kPerAlgorithm.
  Determinism determinism;
  /// Transport of exchanges (every collective but all-reduce). Default: chosen by message size and memory.
  Transport transport;
  /// Whether the group opens multicast. Default kOff.
  Multicast multicast;
  /// The number of adopted allocations, and of addresses of graphs outside of them, that can be registered at once.
  /// Default 1024.
  std::uint32_t registrations;
  /// Most blocks of any kernel that the communicator launches, 1 to 65535. Unset, the default: as many as each kernel
  /// can use, which is 256 at most for kernels that wait for peers. Kernels of two communicators that wait for peers
  /// concurrently must fit the device together, with at least one block on a multiprocessor: otherwise ranks that start
  /// them in different orders wait for each other. Fewer blocks give the same results, more slowly.
  std::optional<std::uint32_t> most_blocks;
  /// Whether the ranks compare every call before it runs. Costs one more small kernel for each call. Default: on in
  /// debug builds of the library. SYMMETRA_CHECK_CALLS=1 turns it on. Without it, calls that differ are found after
  /// they ran.
  bool check_calls;
  /// Bytes of a guard between the regions of the arena, and before and after every symmetric buffer, for tests:
  /// Communicator::check_guards and Communicator::close find writes outside a buffer or the scratch. A buffer takes
  /// three more guards of the heap. A multiple of 256, at most 16 MiB. Default 0: no guards.
  std::uint64_t guard_bytes;
  /// Whether this rank logs no warning about ranks for which it waits, and none when it drops the group without
  /// Communicator::close. For programs that have a watchdog of their own. Ranks may differ. Default: warnings are logged.
  bool silence;
  /// Whether a call that fails keeps its stream: later work of the stream does not run on the incomplete output. The stream
  /// goes on, and the output is undefined, when this rank aborts, closes, departs from or destroys the communicator, and
  /// when the process ends. Until then every wait for the stream or the device blocks, except Communicator::synchronize,
  /// which throws the failure. Ranks may differ. Default: the stream goes on at once.
  bool hold_after_failure;
  /// Whether graphs that a stream's owner captures (cudaStreamBeginCapture, Stream::begin_capture) keep one order with the
  /// communicator's eager calls and with other graphs, on any streams. Each launch of such a graph then waits for an event
  /// and records the event. Without mixing, the owner orders launches and eager calls (docs/porting.md). Ranks may differ. Bodies of
  /// conditional nodes and graphs that a device launches accept no events: calls in them need this off. Default: off.
  bool graph_mixing;
  /// Whether kernels record when each call begins and ends, for Communicator::timings, `symmetra status --timings` and
  /// `symmetra trace`. On GPUs this needs a build with the feature `timing`: otherwise opening throws kUnsupported.
  /// SYMMETRA_TIMING=1 turns it on. Default: off.
  bool timing;
  /// Path of a file of crossovers that `symmetra tune` measured on this machine, instead of the built-in table.
  /// Default: none. Opening throws kSystem when it cannot be read, kInvalidArgument when it is malformed.
  std::string tuning;
};

/// Device memory in bytes that a communicator of `world_size` ranks takes on each rank, before rounding up to the
/// device's granularity. Exact: nothing grows after opening. Throws kInvalidArgument for a world size or a setting
/// outside its limits.
std::uint64_t required_bytes(std::size_t world_size, const Config& config);

}  // namespace symmetra
