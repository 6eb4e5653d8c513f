// Bootstraps of the Rust library as the public class.
#pragma once

#include <memory>
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

  /// The Rust object of any bootstrap, which takes ownership. Throws kInvalidArgument for null.
  static rust::Box<Ready> taken(std::unique_ptr<Bootstrap> bootstrap);

  /// Moves the Rust object out. This object can only be destroyed afterwards.
  rust::Box<Ready> release() && { return std::move(core_); }

 private:
  Ready* ready() noexcept override { return &*core_; }

  rust::Box<Ready> core_;
};

}  // namespace symmetra::core
