// The values that a graph holds.
#pragma once

#include <memory>

#include "cpp/device/device.hpp"

namespace symmetra::device::gpu {

/// Releases a keepalive when it is destroyed.
class Kept {
 public:
  explicit Kept(Keepalive keepalive) : keepalive_(keepalive) {}
  ~Kept() { keepalive_.release(keepalive_.data); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Keepalive keepalive_;
};

inline std::unique_ptr<Kept> keep(Keepalive keepalive) {
  try {
    return std::make_unique<Kept>(keepalive);
  } catch (...) {
    keepalive.release(keepalive.data);
    throw;
  }
}

}  // namespace symmetra::device::gpu
