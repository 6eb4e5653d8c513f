/// \file
/// Tensor, pipeline, data and expert parallel groups over one world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "symmetra/backend.hpp"
#include "symmetra/bootstrap.hpp"
#include "symmetra/config.hpp"
#include "symmetra/coordinator.hpp"
#include "symmetra/device.hpp"

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
  /// Ranks that share each layer.
  std::size_t tensor_parallel_size = 1;
  /// Stages of a pipeline.
  std::size_t pipeline_parallel_size = 1;
  /// Replicas of the layers.
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
  /// Where the ranks meet; unused with a bootstrap object. `env://`: at MASTER_ADDR and MASTER_PORT.
  /// `tcp://host:port`: rank 0 listens there; the secret is SYMMETRA_SECRET's, the interface SYMMETRA_BIND's.
  /// `file://path`: in this directory of the user's own, for ranks of one host.
  std::string init_method = "env://";
  /// The device of this rank, which init() shares. Null: CUDA device `local_rank` where this build and host
  /// have any, else the CPU.
  const Device* device = nullptr;
  /// Which host this is: ranks that say the same share memory. Unset: the system's boot id.
  std::optional<std::string> host;
  /// The interface that ranks of several hosts speak over: an IP address of this host or the name of an
  /// interface. Nothing is bound to another. Unset: from SYMMETRA_INTERFACE, else the address from which
  /// this host reaches rank 0, where the init method names one.
  std::optional<std::string> interface;
  /// The one backend that may serve groups of more than one rank: a call it does not serve throws. Unset:
  /// from SYMMETRA_BACKEND, else each call goes to the first that serves it. Equal on every rank.
  std::optional<Backend> backend;
  /// Settings of every group's communicator.
  Config communicator;
};

/// A host, and which ranks of the world are on it, in order.
struct Host {
  /// What they said of it: EnvConfig::host, or the system's boot id.
  std::string name;
  std::vector<std::size_t> ranks;
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
  /// Meets the other ranks and opens all groups. Collective; blocks. After close() a process may do it again.
  ///
  /// Where ranks are on several hosts, those of each host open communicators of their own, and groups that
  /// span hosts are connected by an engine (feature `gloo`).
  ///
  /// Throws kInvalidArgument for sizes whose product does not divide the world size (it shows the
  /// arithmetic), a malformed or missing variable or a device there is not; kMismatch when ranks differ in
  /// sizes or settings; kUnsupported for ranks on several hosts, which it names, without an engine between
  /// them; as Communicator::open otherwise.
  static Environment init(const EnvConfig& config);
  /// The same over an object of the caller's, which also tells rank and world size. It is used by one thread at
  /// a time, of any: ranks of several hosts ask it who died, and wait as long as it does where it ignores deadlines.
  ///
  /// Where all ranks are on one host it is destroyed when they have met, else with the environment and its
  /// coordinators. Not so where a group has failed: then a thread of the library's is in its all_gather until every
  /// other rank has failed or closed as well, or the call throws; its deadline is a day. That may be long after the
  /// environment is gone, and destroys the object at its end: ranks that are well would take one that gave up
  /// earlier for dead. What the object works with (MPI, a store) must outlast its destructor, which tells a program
  /// that it is no longer used.
  static Environment init(std::unique_ptr<Bootstrap> bootstrap, const EnvConfig& config);
  /// The same over an object that is used during the call only. Ranks of one host: throws kUnsupported for
  /// others.
  static Environment init(Bootstrap& bootstrap, const EnvConfig& config);

  Environment(Environment&&) noexcept = default;
  Environment& operator=(Environment&&) noexcept = default;

  const Coordinator& world() const;
  const Coordinator& tp() const { return group(Parallelism::kTensor); }
  const Coordinator& pp() const { return group(Parallelism::kPipeline); }
  const Coordinator& dp() const { return group(Parallelism::kData); }
  const Coordinator& ep() const { return group(Parallelism::kExpert); }
  const Coordinator& group(Parallelism parallelism) const;

  /// Which ranks are on which host, ordered by their lowest rank.
  std::vector<Host> hosts() const;
  /// The effective settings.
  std::vector<Setting> settings() const;
  /// Closes every group in good order. Collective; blocks. Later calls on them and their communicators
  /// throw kClosed. Throws the first error of a group that had failed: all are closed all the same.
  void close() const;

 private:
  explicit Environment(std::shared_ptr<core::Environment> core);

  std::shared_ptr<core::Environment> core_;
  /// The world, then each Parallelism in order.
  std::vector<Coordinator> coordinators_;
};

}  // namespace symmetra
