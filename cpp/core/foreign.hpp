// The functions of a program's bootstrap that src/bootstrap/foreign.rs calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rust/cxx.h"
#include "symmetra/bootstrap.hpp"

namespace symmetra::core {

inline size_t rank_of(const Bootstrap& bootstrap) { return bootstrap.rank(); }
inline size_t world_size_of(const Bootstrap& bootstrap) { return bootstrap.world_size(); }

inline Bootstrap::Deadline deadline_in(uint64_t timeout_ms) {
  // No deadline of a Config is longer than a day.
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(std::min<uint64_t>(timeout_ms, 86'400'000));
}

/// `receive` is as long as `send` of all ranks together.
inline void all_gather(Bootstrap& bootstrap, rust::Slice<const uint8_t> send, rust::Slice<uint8_t> receive, uint64_t timeout_ms) {
  bootstrap.all_gather(send.data(), receive.data(), send.size(), deadline_in(timeout_ms));
}

inline void barrier(Bootstrap& bootstrap, uint64_t timeout_ms) { bootstrap.barrier(deadline_in(timeout_ms)); }

}  // namespace symmetra::core
