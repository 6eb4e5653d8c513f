// Throws symmetra::Error for a failed system call.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "symmetra/error.hpp"

namespace symmetra::device::host {

/// `doing` names the call and its sizes, `code` is errno.
[[noreturn]] inline void throw_system(const std::string& doing, int code) {
  const ErrorKind kind = code == ENOMEM ? ErrorKind::kOutOfMemory : ErrorKind::kSystem;
  throw Error(kind, doing + ": " + std::generic_category().message(code) + " (errno " + std::to_string(code) + ")", code);
}

}  // namespace symmetra::device::host
