/// \file
/// A GPU's streams, wrapped for the library.
#pragma once

#include <mutex>
#include <unordered_map>
#include <utility>

#include "symmetra/device.hpp"
#include "symmetra/stream.hpp"

namespace p2p_allreduce::detail {

/// The program's streams, each borrowed once, so that a call on a known stream allocates nothing.
template <class Native>
class BorrowedStreams {
 public:
  explicit BorrowedStreams(symmetra::Device device) : device_(std::move(device)) {}

  const symmetra::Stream& of(Native native) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = streams_.find(native);
    if (known != streams_.end()) return known->second;
    return streams_.emplace(native, symmetra::Stream::borrow(device_, native)).first->second;
  }

 private:
  symmetra::Device device_;
  std::mutex mutex_;
  std::unordered_map<Native, symmetra::Stream> streams_;
};

}  // namespace p2p_allreduce::detail
