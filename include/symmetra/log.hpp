/// \file
/// The destination of symmetra's log.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "symmetra/toolchain.hpp"

namespace symmetra {

/// The severity of a line of the log. The numbers are stable.
enum class LogLevel : std::uint32_t {
  kError = 0,  ///< a defect, or a system that refuses a request that should succeed
  kWarn = 1,   ///< something to look at: a misspelt variable, leaked memory, strangers at a port
  kInfo = 2,   ///< the composition of a group
  kDebug = 3,  ///< details that help to find a defect
};

/// One line of the log. The texts are valid during the call of the sink.
struct LogLine {
  LogLevel level;
  std::string_view origin;  ///< the part of symmetra that logs, like "symmetra::variables"
  std::string_view text;    ///< without the end of a line
};

/// Passes every later line of the log to `sink`, which replaces an earlier sink. Without a sink, or with an empty one,
/// lines go to standard error. Lines below the level of the variable SYMMETRA_LOG (off, error, warn, info, debug or
/// trace; warn if unset) are dropped. In a program with parts in Rust, a `tracing` subscriber takes precedence.
///
/// Any thread of symmetra may call the sink, and several threads may call the sink at once. After another sink has
/// replaced a sink, a call of the replaced sink may still be running. Exceptions of the sink are dropped.
void set_log(std::function<void(const LogLine&)> sink);

}  // namespace symmetra
