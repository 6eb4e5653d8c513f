/// \file
/// What can serve the calls of a parallel group, and how that is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symmetra/types.hpp"

namespace symmetra {

/// What can serve a group's calls, in the order they are asked: a call goes to the first that serves it.
/// The numbers are stable.
enum class Backend : std::uint32_t {
  kQuantised = 0,  ///< all-reduces of compressed elements; there are none yet, so it refuses every call
  kOwn = 1,        ///< symmetra's own kernels, which other libraries call custom ones: groups on one host, every call
  kNccl = 2,       ///< NCCL, found at run time (feature `nccl`): groups of GPUs; no averages of integers, no minima
                   ///< and maxima of floating types, whose sums, products and averages have its order and roundings
  kHost = 3,       ///< through the CPU and an engine between hosts (feature `gloo`): a call blocks until its result is
                   ///< there, and cannot be captured
};

/// The name used in settings and messages: "own". Throws kInvalidArgument for a number that is no Backend.
std::string name(Backend backend);
/// The backend with this name. Throws kInvalidArgument, with the names there are.
Backend backend(const std::string& name);

/// Calls of one operation that go to one backend, of any size and at any element-aligned address: no
/// backend has a limit in either.
struct Served {
  /// As messages name it: "all-reduce", "send and receive".
  std::string operation;
  /// What it computes; empty where it computes nothing.
  std::vector<Reduction> reductions;
  /// Of which types.
  std::vector<Dtype> dtypes;
  /// Whether it is enqueued, or recorded into a graph.
  bool captured;
};

/// A backend's part in a group.
struct Explanation {
  Backend backend;
  /// The calls that go to it: no two entries, of whatever backend, hold the same call.
  std::vector<Served> serves;
  /// Why it does not serve calls that came to it, each reason once.
  std::vector<std::string> refuses;
  /// All of it as a line to print.
  std::string text;
};

}  // namespace symmetra
