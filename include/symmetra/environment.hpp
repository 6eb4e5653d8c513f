/// \file
/// Tensor, pipeline, data and expert parallel groups over one world.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symmetra/communicator.hpp"

namespace symmetra {

namespace core {
struct Environment;
}

/// A way to divide the work, and so the ranks.
enum class Parallelism : std::uint32_t {
  kTensor = 0,    ///< ranks that share each layer
  kPipeline = 1,  ///< ranks that hold successive layers
  kData = 2,      ///< ranks that hold the same layers and work on different requests
  kExpert = 3,    ///< ranks that share the experts of a pipeline stage: data times tensor
};

/// How to set up an Environment. What is set here beats every environment variable.
struct EnvConfig {
  std::size_t tensor_parallel_size = 1;
  std::size_t pipeline_parallel_size = 1;
  std::size_t data_parallel_size = 1;
  /// Set where each data parallel replica is started as a world of its own: `rank` and `world_size` then
  /// count within the replica, and this is its number.
  std::optional<std::size_t> data_parallel_rank;
  /// This rank. Unset: from RANK, or from the bootstrap object.
  std::optional<std::size_t> rank;
  /// How many ranks there are. Unset: from WORLD_SIZE, or from the bootstrap object.
  std::optional<std::size_t> world_size;
  /// Which device of the host this rank works on. Unset: from LOCAL_RANK, else the number
  /// among the ranks of the host.
  std::optional<std::size_t> local_rank;
  /// `env://`, `tcp://host:port` or `file://path`; unused with a bootstrap object.
  std::string init_method = "env://";
  /// The device of this rank; not null through init() only. Null: CUDA device `local_rank` where this
  /// build and host have any, else the CPU.
  const Device* device = nullptr;
  /// Settings of every group's communicator.
  Config communicator;
};

/// One parallel group: who is in it, and what its communicator runs.
class Coordinator {
 public:
  /// What runs collectives. Groups of the same ranks share its memory.
  const Communicator& communicator() const { return communicator_; }
  /// This rank's number in the group.
  std::size_t rank() const { return communicator_.rank(); }
  std::size_t world_size() const { return ranks_.size(); }
  /// The group's ranks as the world numbers them, in the order of the group.
  const std::vector<std::size_t>& ranks() const { return ranks_; }
  std::size_t first_rank() const { return ranks_.front(); }
  std::size_t last_rank() const { return ranks_.back(); }
  bool is_first_rank() const { return rank() == 0; }
  bool is_last_rank() const { return rank() + 1 == world_size(); }
  /// The rank after this one, going round, as the world numbers it.
  std::size_t next_rank() const { return ranks_[(rank() + 1) % world_size()]; }
  /// The rank before this one, likewise.
  std::size_t previous_rank() const { return ranks_[(rank() + world_size() - 1) % world_size()]; }

 private:
  friend class Environment;
  Coordinator(Communicator communicator, std::vector<std::size_t> ranks)
      : communicator_(std::move(communicator)), ranks_(std::move(ranks)) {}

  Communicator communicator_;
  std::vector<std::size_t> ranks_;
};

/// An effective setting, and who decided it: `program`, the name of a variable, `derived` or `default`.
struct Setting {
  std::string name;
  std::string value;
  std::string source;
};

/// A rank's groups: the world, and its tensor, pipeline, data and expert parallel groups. Ranks are laid
/// out external data x data x pipeline x tensor, tensor fastest. Move-only.
///
/// close() before destroying it; destroyed unclosed, this rank counts as lost by the others.
class Environment {
 public:
  /// Meets the other ranks and opens all groups. Collective; blocks. Throws kInvalidArgument for sizes
  /// whose product does not divide the world size (it shows the arithmetic), a malformed or missing
  /// variable or a device there is not; kMismatch when ranks differ in sizes or settings; kUnsupported for
  /// ranks on several hosts; as Communicator::open otherwise.
  static Environment init(const EnvConfig& config);
  /// The same over an object of the caller's, which also tells rank and world size and is used during
  /// the call only.
  static Environment init(Bootstrap& bootstrap, const EnvConfig& config);

  Environment(Environment&&) noexcept = default;
  Environment& operator=(Environment&&) noexcept = default;

  const Coordinator& world() const { return coordinators_[0]; }
  const Coordinator& tp() const { return group(Parallelism::kTensor); }
  const Coordinator& pp() const { return group(Parallelism::kPipeline); }
  const Coordinator& dp() const { return group(Parallelism::kData); }
  const Coordinator& ep() const { return group(Parallelism::kExpert); }
  const Coordinator& group(Parallelism parallelism) const { return coordinators_[1 + static_cast<std::size_t>(parallelism)]; }

  /// The effective settings.
  std::vector<Setting> settings() const;
  /// Closes every group in good order. Collective; blocks. Later calls on their communicators throw
  /// kClosed. Throws the first error of a group that had failed: all are closed all the same.
  void close() const;

 private:
  explicit Environment(std::shared_ptr<core::Environment> core);

  std::shared_ptr<core::Environment> core_;
  /// The world, then each Parallelism in order.
  std::vector<Coordinator> coordinators_;
};

}  // namespace symmetra
