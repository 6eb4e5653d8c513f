// Rust's own bootstraps as the public class.
#pragma once

#include <utility>

#include "rust/cxx.h"
#include "symmetra/bootstrap.hpp"
#include "symmetra/src/capi/mod.rs.h"

namespace symmetra::core {

class ReadyMade final : public Bootstrap {
 public:
  explicit ReadyMade(rust::Box<Ready> core) : core_(std::move(core)) {}

  std::size_t rank() const override { return ready_rank(*core_); }
  std::size_t world_size() const override { return ready_world_size(*core_); }
  void all_gather(const void* send, void* receive, std::size_t bytes, Deadline deadline) override;

  /// What Rust knows it by. Nothing but destroying this is left to do.
  rust::Box<Ready> release() && { return std::move(core_); }

 private:
  Ready* ready() noexcept override { return &*core_; }

  rust::Box<Ready> core_;
};

}  // namespace symmetra::core
