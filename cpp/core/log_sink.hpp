// The function that the program passed to set_log, for Rust.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "rust/cxx.h"
#include "symmetra/log.hpp"

namespace symmetra::core {

class LogSink {
 public:
  explicit LogSink(std::function<void(const LogLine&)> sink) : sink_(std::move(sink)) {}

  /// Any thread may call this function.
  void write(std::uint32_t level, rust::Str origin, rust::Str text) const {
    sink_({static_cast<LogLevel>(level), {origin.data(), origin.size()}, {text.data(), text.size()}});
  }

 private:
  std::function<void(const LogLine&)> sink_;
};

}  // namespace symmetra::core
