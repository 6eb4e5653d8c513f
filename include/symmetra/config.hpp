/// \file
/// What can be set when a group opens.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "symmetra/types.hpp"

namespace symmetra {

/// How long things may take before they fail. 1 ms to 24 h.
struct Deadlines {
  /// Opening, splitting and closing a group, and every exchange between. Default 120 s.
  std::chrono::milliseconds open;
  /// A wait of the first operation on the device, when a peer may still load or compile. Default 120 s.
  std::chrono::milliseconds first_use;
  /// A wait of any later operation. Default 30 s.
  std::chrono::milliseconds steady;
};

/// What the bits of a floating-point result may depend on, beside the inputs and the world size. They are
/// equal on all ranks and from run to run in any case; integers are exact.
enum class Determinism {
  kPerAlgorithm,  ///< on the algorithm, and so on size and memory; for kRing on an element's place in the message
  kExact,         ///< on nothing: sums in rank order, rounded once; algorithms that cannot promise that are refused
};

/// The settings of a communicator. Ranks must agree on all of them; a difference throws kMismatch on
/// every rank, a value outside its limits kInvalidArgument (and kPeer on the other ranks).
struct Config {
  /// The library's defaults.
  Config();

  Deadlines deadlines;
  /// Room for symmetric buffers in the arena, in bytes. Default 64 MiB.
  std::uint64_t heap_bytes;
  /// Largest message of one one-shot LL call, in bytes; larger ones take several calls. Exchanges by
  /// packets move as much from rank to rank in one round. 1 KiB to 512 MiB; default 256 KiB.
  std::uint64_t one_shot_ll_bytes;
  /// The same for one-shot with sentinels. Unset, the default, is 16 MiB / (world size squared) within
  /// 256 KiB and 4 MiB.
  std::optional<std::uint64_t> one_shot_sentinel_bytes;
  /// The same for two-shot LL. Default 1 MiB.
  std::uint64_t two_shot_ll_bytes;
  /// The same for two-shot with sentinels. Default 4 MiB.
  std::uint64_t two_shot_sentinel_bytes;
  /// Scratch of the ring in bytes, 4 KiB to 32 GiB: queues, which a message of any size goes through. Larger
  /// ones pass on larger pieces. Default 16 MiB.
  std::uint64_t ring_bytes;
  /// Largest message of one call by recursive doubling, 1 KiB to 512 MiB. Default 64 KiB.
  std::uint64_t recursive_doubling_bytes;
  /// What the bits of a result may depend on. Default kPerAlgorithm.
  Determinism determinism;
  /// How exchanges (every collective but all-reduce) move their data. Default: by size and memory.
  Transport transport;
  /// Graph nodes and adopted allocations that can be registered at once. Default 1024.
  std::uint32_t registrations;
  /// Whether every call is compared across ranks before it runs, at the price of one more small
  /// kernel. Default: in debug builds of the library.
  bool check_calls;
  /// A file of crossovers that `symmetra tune` measured on this machine, in place of the built-in ones.
  /// Default: none. Opening throws kSystem when it cannot be read, kInvalidArgument when it is malformed.
  std::string tuning;
};

/// Bytes of device memory that a communicator of `world_size` ranks takes on each rank, before rounding
/// up to the device's granularity. Exact: nothing grows after opening. Throws kInvalidArgument for a
/// world size or a setting outside its limits.
std::uint64_t required_bytes(std::size_t world_size, const Config& config);

}  // namespace symmetra
