/// \file
/// Backends that serve the calls of a parallel group, and their descriptions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symmetra/types.hpp"

namespace symmetra {

/// A backend. Backends are tried in this order, and the first that serves a call runs it. The numbers are stable.
enum class Backend : std::uint32_t {
  /// symmetra kernels with a codec: all-reduces, sums and averages, of f16 and bf16 in groups on one host, if
  /// EnvConfig::quantised enables them for the size, and determinism is not exact
  kQuantised = 0,
  kOwn = 1,   ///< symmetra's own kernels: groups on one host, every call
  kNccl = 2,  ///< NCCL, found at run time (feature `nccl`): groups of GPUs; no averages of integers, no minima or
              ///< maxima of floating types; reductions of 8-bit floats from 2.24 and compute capability 9.0 on; NCCL
              ///< decides order and rounding of floating-point results
  kHost = 3,  ///< through the CPU and an engine between hosts (feature `gloo`): a call blocks until its result is
              ///< there, and cannot be captured
};

/// The name used in settings and messages, for example "own". Throws kInvalidArgument for a number that is no Backend.
std::string name(Backend backend);
/// The backend with this name. Throws kInvalidArgument with the valid names.
Backend backend(const std::string& name);

/// Calls of one operation that go to one backend. Only all-reduces have sizes that one backend serves and another does not. No backend
/// limits the address, beyond element alignment.
struct Served {
  /// Name of the operation in messages: "all-reduce", "send and receive".
  std::string operation;
  /// Reductions that it serves; empty for an operation that does not reduce.
  std::vector<Reduction> reductions;
  /// Element types that it serves.
  std::vector<Dtype> dtypes;
  /// Whether the call is recorded into a graph; otherwise it is enqueued.
  bool captured;
  /// The smallest all-reduce, in bytes; 0 for other operations.
  std::uint64_t from_bytes;
  /// The largest all-reduce, in bytes; the largest number: no limit, as for other operations.
  std::uint64_t up_to_bytes;
};

/// A backend's part in a group.
struct Explanation {
  Backend backend;
  /// The calls that this backend serves. No call is in two entries, of one backend or several.
  std::vector<Served> serves;
  /// The reasons for which the backend refuses calls, each once.
  std::vector<std::string> refuses;
  /// The description as a line to print.
  std::string text;
};

}  // namespace symmetra
