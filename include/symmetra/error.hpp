/// \file
/// The exception type of symmetra.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "symmetra/toolchain.hpp"

namespace symmetra {

/// The kind of an error. The numbers are stable.
enum class ErrorKind : std::uint32_t {
  kInternal = 0,         ///< a defect in symmetra
  kInvalidArgument = 1,  ///< a value outside its limit; the message names both
  kUnsupported = 2,      ///< a valid request that this build, device or algorithm cannot serve
  kOutOfMemory = 3,      ///< too little arena or device memory
  kDevice = 4,           ///< a call of the device runtime or of NCCL failed; native_code() is its code
  kSystem = 5,           ///< a system call failed; native_code() is errno
  kBootstrap = 6,        ///< ranks could not meet: wrong size, rank, secret, or a stranger
  kTimeout = 7,          ///< a deadline passed; rank() is the rank that was waited for, or -1
  kPeerLost = 8,         ///< a rank died, or a call needs a rank that left; rank() is its number
  kAborted = 9,          ///< the group was aborted
  kMismatch = 10,        ///< ranks disagree; rank() is the rank that differs
  kClosed = 11,          ///< the group was closed
  kNotRegistered = 12,   ///< a graph was replayed before its pointers were registered
  kPeer = 13,            ///< another rank failed in a collective step; rank() is that rank
  kRouting = 14,         ///< a token of rank() has an invalid expert id; the message names token and expert
  kCapacity = 15,        ///< rank() would receive more rows than its capacity, or requests more tokens than it has ids for
};

/// Thrown by every function of symmetra that fails.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::int64_t native_code = 0, std::int32_t rank = -1)
      : std::runtime_error(message), kind_(kind), native_code_(native_code), rank_(rank) {}

  ErrorKind kind() const noexcept { return kind_; }
  /// The error code of the device runtime or the system; 0 if there is none.
  std::int64_t native_code() const noexcept { return native_code_; }
  /// The rank concerned; -1 if there is none.
  std::int32_t rank() const noexcept { return rank_; }

 private:
  ErrorKind kind_;
  std::int64_t native_code_;
  std::int32_t rank_;
};

}  // namespace symmetra
