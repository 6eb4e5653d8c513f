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

/// A dimension along which the work is divided between ranks.
enum class Parallelism : std::uint32_t {
  kTensor = 0,    ///< ranks that share each layer
  kPipeline = 1,  ///< ranks that hold successive layers
  kData = 2,      ///< ranks that hold equal layers and work on different requests
  kExpert = 3,    ///< ranks that share the experts of a pipeline stage: data times tensor
};

/// The all-reduces that use a codec without naming one: sums and averages of f16 and bf16 with a size within these
/// limits.
struct QuantisedAllReduce {
  /// The codec. kNone sends every value as it is.
  Codec codec = Codec::kNone;
  /// The smallest message, in bytes. Unset: the size from which the codec is faster, according to the tuning, else 2
  /// MiB. If the tuning found no such size, the codec is not used.
  std::optional<std::size_t> min_bytes = std::nullopt;
  /// The largest message, in bytes. Unset: no limit.
  std::optional<std::size_t> max_bytes = std::nullopt;
};

/// Settings of an Environment. A value set here takes precedence over every environment variable.
struct EnvConfig {
  /// Number of ranks that share each layer.
  std::size_t tensor_parallel_size = 1;
  /// Number of pipeline stages.
  std::size_t pipeline_parallel_size = 1;
  /// Number of replicas of the layers.
  std::size_t data_parallel_size = 1;
  /// The number of this data parallel replica. Set it when each replica is started as a world of its own; `rank` and
  /// `world_size` then count within the replica.
  std::optional<std::size_t> data_parallel_rank;
  /// This rank's number. Unset: from RANK or the variable of another launcher, or from the bootstrap object.
  std::optional<std::size_t> rank;
  /// The number of ranks. Unset: from WORLD_SIZE or the variable of another launcher, or from the bootstrap object.
  std::optional<std::size_t> world_size;
  /// The number of this rank's device on its host. Unset: from LOCAL_RANK, else from the launcher that gave the rank,
  /// else the rank's place among the ranks of the host.
  std::optional<std::size_t> local_rank;
  /// Where the ranks meet; unused with a bootstrap object. `env://`: at MASTER_ADDR and MASTER_PORT. `tcp://host:port`:
  /// rank 0 listens there, with the secret of SYMMETRA_SECRET and the interface of SYMMETRA_BIND. `file://path`: in
  /// this directory, which belongs to the user, for ranks of one host.
  std::string init_method = "env://";
  /// The device of this rank, which init() shares. Null: CUDA device `local_rank` when build and host have one, else
  /// the CPU.
  const Device* device = nullptr;
  /// The name of this host. Ranks with equal names share memory. Unset: the system's boot id.
  std::optional<std::string> host;
  /// The interface for traffic between hosts: an IP address of this host or an interface's name. No other interface is
  /// bound. Unset: from SYMMETRA_INTERFACE, else the address from which this host reaches rank 0, if the init method
  /// names one.
  std::optional<std::string> interface;
  /// The only backend that may serve groups of more than one rank: a call that it does not serve throws. Unset: from
  /// SYMMETRA_BACKEND, else the first backend that serves a call gets the call. Equal on every rank.
  std::optional<Backend> backend;
  /// The all-reduces that use a codec without naming one. Unset: from AITER_QUICK_REDUCE_QUANTIZATION and
  /// AITER_QUICK_REDUCE_MAX_SIZE_BYTES_MB, else none. Equal on every rank.
  std::optional<QuantisedAllReduce> quantised;
  /// Settings of every group's communicator.
  Config communicator;
};

/// A host and its ranks, in rank order.
struct Host {
  /// The host's name: EnvConfig::host, or the system's boot id.
  std::string name;
  std::vector<std::size_t> ranks;
};

/// An effective setting and its source: `program`, the name of a variable, `derived` or `default`.
struct Setting {
  std::string name;
  std::string value;
  std::string source;
};

/// A rank's groups: the world, and its tensor, pipeline, data and expert parallel groups. Ranks are laid out external
/// data x data x pipeline x tensor, tensor fastest. Move-only.
///
/// Call close() before destroying it. If a rank destroys it without close(), calls that need the rank fail on the others.
class Environment {
 public:
  /// Meets the other ranks and opens all groups. Collective; blocks. After close() a process may call it again.
  ///
  /// When ranks are on several hosts, the ranks of each host open communicators of their own, and NCCL (feature `nccl`) or
  /// an engine (feature `gloo`) connects groups that span hosts.
  ///
  /// Throws kInvalidArgument for sizes whose product does not divide the world size (the message shows the arithmetic),
  /// a malformed or missing variable, or a device that does not exist; kMismatch when ranks differ in sizes or
  /// settings; kUnsupported for ranks on several hosts, which the message names, in a build without either; and the errors of
  /// Communicator::open.
  static Environment init(const EnvConfig& config);
  /// Meets over the caller's bootstrap, which also provides rank and world size. One thread at a time uses the object,
  /// but not always the same thread. Ranks on several hosts also use the object after a failure, to find out which
  /// rank died. If the object ignores deadlines, this wait lasts as long as the call of the object.
  ///
  /// If all ranks are on one host, the object is destroyed after they have met, else with the environment and its
  /// coordinators. After a group has failed, a thread of the library stays in the object's all_gather until every other
  /// rank has failed or closed, or the call throws; the deadline is a day. That thread may outlive the environment, and
  /// destroys the object at its end. A rank that gave up earlier would look dead to healthy ranks. The resources of the
  /// object (MPI, a store) must outlast its destructor, which notifies the program that it is no longer used.
  static Environment init(std::unique_ptr<Bootstrap> bootstrap, const EnvConfig& config);
  /// Meets over the caller's bootstrap, which is used during this call only. For ranks of one host: throws kUnsupported
  /// for ranks of several hosts.
  static Environment init(Bootstrap& bootstrap, const EnvConfig& config);

  Environment(Environment&&) noexcept = default;
  Environment& operator=(Environment&&) noexcept = default;

  const Coordinator& world() const;
  const Coordinator& tp() const { return group(Parallelism::kTensor); }
  const Coordinator& pp() const { return group(Parallelism::kPipeline); }
  const Coordinator& dp() const { return group(Parallelism::kData); }
  const Coordinator& ep() const { return group(Parallelism::kExpert); }
  const Coordinator& group(Parallelism parallelism) const;

  /// The hosts and their ranks, ordered by the hosts' lowest ranks.
  std::vector<Host> hosts() const;
  /// The effective settings.
  std::vector<Setting> settings() const;
  /// Closes every group in order. Collective; blocks. Later calls on groups and communicators throw kClosed. All groups
  /// are closed even if one had failed; then the first error is thrown.
  void close() const;

 private:
  explicit Environment(std::shared_ptr<core::Environment> core);

  std::shared_ptr<core::Environment> core_;
  /// The world, then one group of each Parallelism in order.
  std::vector<Coordinator> coordinators_;
};

}  // namespace symmetra
