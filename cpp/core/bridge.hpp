// Included by every cxx bridge: passes exceptions to Rust. The text is "kind|native code|rank|message", which
// src/sys/exception.rs parses.
#pragma once

#include <exception>
#include <string>

#include "symmetra/error.hpp"

namespace symmetra::core {

inline std::string encode(ErrorKind kind, std::int64_t native_code, std::int32_t rank, const char* message) {
  return std::to_string(static_cast<std::uint32_t>(kind)) + '|' + std::to_string(native_code) + '|' + std::to_string(rank) + '|' + message;
}

}  // namespace symmetra::core

namespace rust::behavior {

template <typename Try, typename Fail>
void trycatch(Try&& attempt, Fail&& fail) noexcept {
  using symmetra::ErrorKind;
  using symmetra::core::encode;
  try {
    attempt();
  } catch (const symmetra::Error& error) {
    fail(encode(error.kind(), error.native_code(), error.rank(), error.what()));
  } catch (const std::exception& error) {
    fail(encode(ErrorKind::kInternal, 0, -1, error.what()));
  } catch (...) {
    fail(encode(ErrorKind::kInternal, 0, -1, "an exception that is not a std::exception"));
  }
}

}  // namespace rust::behavior
