/// \file
/// Where the lines of symmetra's log go.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "symmetra/toolchain.hpp"

namespace symmetra {

/// How grave a line of the log is. The numbers are stable.
enum class LogLevel : std::uint32_t {
  kError = 0,  ///< a defect, or a system that refuses what it should grant
  kWarn = 1,   ///< what somebody should look at: a misspelt variable, memory that is leaked, strangers at a port
  kInfo = 2,   ///< what a group is made of
  kDebug = 3,  ///< what helps to find a defect
};

/// One line of the log. The texts live as long as the call of the sink.
struct LogLine {
  LogLevel level;
  std::string_view origin;  ///< the part of symmetra that logs, like "symmetra::variables"
  std::string_view text;    ///< without the end of a line
};

/// Gives every later line of the log to `sink`, which replaces an earlier sink. Without a sink, or with an empty one,
/// lines go to standard error. Lines below the level of the variable SYMMETRA_LOG (off, error, warn, info, debug or
/// trace; warn if unset) go nowhere. In a program with parts in Rust, a `tracing` subscriber takes precedence.
///
/// Any thread of symmetra calls the sink, several at once, until the process ends or another sink replaces this one; a
/// call of this one may then still be running. What the sink throws is dropped.
void set_log(std::function<void(const LogLine&)> sink);

}  // namespace symmetra
