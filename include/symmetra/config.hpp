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

/// What the bits of a floating-point result may depend on, beside the inputs and the world size. Each promises what the one
/// before promises, and more. Integer results are exact in each. Only multicast (Config::multicast) needs less than
/// kPerAlgorithm. Without it the two below choose and compute what that one does.
enum class Determinism : std::uint32_t {
  kFree = 0,    ///< anything: the bits may differ from rank to rank and from run to run
  kPerRun = 1,  ///< the run; the bits are equal on all ranks
  /// The algorithm, and so size and memory; with kRing also an element's position in the message. The bits are equal on all
  /// ranks and in every run.
  kPerAlgorithm = 2,
  kExact = 3,  ///< nothing else: sums in rank order, rounded once; algorithms that cannot promise this are refused
};

/// Whether a group opens multicast: one address for the memory of all ranks, at which the switch between GPUs sums and
/// stores. Needs the feature `multicast`, and on GPUs the environment variable SYMMETRA_MULTICAST=1, because multicast has
/// been run on the host device alone.
enum class Multicast : std::uint32_t {
  kOff = 0,      ///< no multicast
  kTry = 1,      ///< multicast if every rank can open it, else without
  kRequire = 2,  ///< multicast; opening throws kUnsupported on all ranks where it cannot be
};

/// The settings of a communicator. They must be equal on all ranks: a difference throws kMismatch on every rank. A
/// value outside its limits throws kInvalidArgument, and kPeer on the other ranks.
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
  /// Channels of the signals that kernels of yours send each other: see Communicator::heap. A channel takes 12 bytes for each rank.
  /// 0 to 65536; default 256.
  std::uint32_t heap_channels;
  /// Largest message in bytes of one one-shot LL call; larger messages take several calls. Exchanges by LL packets move
  /// as many bytes per rank pair and round. 1 KiB to 512 MiB; default 256 KiB.
  std::uint64_t one_shot_ll_bytes;
  /// Largest message in bytes of one one-shot call with sentinels; exchanges by sentinel packets move as many bytes from rank to
  /// rank in a launch. 1 KiB to 512 MiB. Unset, the default, is 16 MiB / (world size squared), clamped to 256 KiB..4 MiB.
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
  /// What the bits of a result may depend on. Default kPerAlgorithm.
  Determinism determinism;
  /// Transport of exchanges (every collective but all-reduce). Default: chosen by message size and memory.
  Transport transport;
  /// Whether the group opens multicast. Default kOff.
  Multicast multicast;
  /// How many adopted allocations, and addresses of graphs that lie in none, can be registered at once. Default 1024.
  std::uint32_t registrations;
  /// Most blocks of any kernel that the communicator launches, 1 to 65535. Unset, the default: as many as each kernel has
  /// use for, which is 256 at most where kernels wait for peers. Kernels of two communicators that wait for peers at once
  /// must fit the device together, with one block a multiprocessor at the least: else ranks that start them in unlike
  /// order wait for each other. Fewer blocks do the same work with the same results, later.
  std::optional<std::uint32_t> most_blocks;
  /// Whether the ranks compare every call before it runs. Costs one more small kernel a call. Default: on in debug
  /// builds of the library. SYMMETRA_CHECK_CALLS=1 turns it on. Without it calls that differ are found after they ran.
  bool check_calls;
  /// Bytes of a guard between the regions of the arena, and before and behind every symmetric buffer, for tests:
  /// Communicator::check_guards and Communicator::close find what was written beside a buffer or the scratch. A buffer takes
  /// three guards more of the heap. A multiple of 256, at most 16 MiB. Default 0: there are no guards.
  std::uint64_t guard_bytes;
  /// Path of a file of crossovers that `symmetra tune` measured on this machine, instead of the built-in table.
  /// Default: none. Opening throws kSystem when it cannot be read, kInvalidArgument when it is malformed.
  std::string tuning;
};

/// Device memory in bytes that a communicator of `world_size` ranks takes on each rank, before rounding up to the
/// device's granularity. Exact: nothing grows after opening. Throws kInvalidArgument for a world size or a setting
/// outside its limits.
std::uint64_t required_bytes(std::size_t world_size, const Config& config);

}  // namespace symmetra
