// Memory that no call knows, behind memory that calls write: guard.rs in C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "symmetra/symmetra.hpp"

namespace fuzz {

/// Elements behind each operand.
constexpr std::size_t kGuard = 256;

/// Symmetric memory that is allocated right behind a workspace.
class Canary {
 public:
  /// Collective.
  Canary(const symmetra::Communicator& group, const symmetra::Stream& stream) : buffer_(group.symmetric(kBytes, symmetra::Dtype::kU8)) {
    buffer_.write(std::vector<std::uint8_t>(kBytes, kFill), stream);
  }

  /// Throws if the canary was written.
  void check(const symmetra::Stream& stream) const {
    std::vector<std::uint8_t> bytes(kBytes);
    void* const into = bytes.data();
    buffer_.read(into, stream);
    const auto written = [](std::uint8_t byte) { return byte != kFill; };
    const auto first = std::find_if(bytes.begin(), bytes.end(), written);
    if (first == bytes.end()) return;
    const auto last = std::find_if(bytes.rbegin(), bytes.rend(), written).base() - 1;
    throw symmetra::Error(symmetra::ErrorKind::kInternal, "bytes " + std::to_string(first - bytes.begin()) + " to " +
                                                              std::to_string(last - bytes.begin()) + " behind a workspace were written");
  }

 private:
  static constexpr std::size_t kBytes = 16 << 10;
  static constexpr std::uint8_t kFill = 0xc3;

  symmetra::SymmetricBuffer buffer_;
};

}  // namespace fuzz
