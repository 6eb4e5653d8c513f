// A thread that runs commands in place of a stream's worker.
#pragma once

#include <cfenv>

#include "symmetra/device/platform/host.hpp"

namespace symmetra::device::host {

/// The floating-point environment of the thread that makes the object: rounding, and whether small numbers count as zero.
class Numerics {
 public:
  Numerics() noexcept { std::fegetenv(&environment_); }
  void use() const noexcept { std::fesetenv(&environment_); }

 private:
  std::fenv_t environment_;
};

/// While an object lives, its thread computes as the worker does. Afterwards the thread has its own numerics again, and its own
/// place in a launch.
class Guest {
 public:
  explicit Guest(const Numerics& worker) noexcept : place_(platform::host::current) { worker.use(); }
  ~Guest() {
    numerics_.use();
    platform::host::current = place_;
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

 private:
  const Numerics numerics_;
  const platform::host::Thread place_;
};

}  // namespace symmetra::device::host
