/// \file
/// Collectives over meshes of tensor and data parallelism, inside hosts and across hosts. docs/mixed.md has the tables
/// of operations, modes and roundings. Meshes have run on the host device, on one host and on several; on one GPU that
/// ranks share; and on 2 and 4 GPUs, as one host and split into two logical hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/capture.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class Coordinator;

namespace core {
struct MixedGrid;
}  // namespace core

/// The division of ranks and hosts. If one of the two sizes of a level is unset, it follows from the other; if both are
/// unset, the level is tensor parallel. Tensor varies fastest on both levels. The world may be numbered in any order.
struct Grid {
  /// Ranks of a host that hold parts of one tensor.
  std::optional<std::size_t> local_tensor{};
  /// Ranks of a host that work on different data.
  std::optional<std::size_t> local_data{};
  /// Hosts that hold parts of one tensor.
  std::optional<std::size_t> across_tensor{};
  /// Hosts that work on different data.
  std::optional<std::size_t> across_data{};
};

/// An operation over a mesh. N: elements of `x` or of a slice; dp: the number of data ranks.
enum class MixedOperation : std::uint32_t {
  /// N -> N: the reduction over all ranks. On meshes without data parallelism.
  kAllReduce = 0,
  /// N -> dp N: block d is `x` of data rank d. On meshes without tensor parallelism.
  kAllGather = 1,
  /// dp N -> N: the reduction over all ranks of the slice of the own data rank. On meshes without tensor parallelism.
  kReduceScatter = 2,
  /// N -> dp N: block d is the reduction over the ranks of data rank d. On meshes with both.
  kAllReduceAllGather = 3,
  /// dp N -> N: the reduction over all ranks of the slice of the own data rank. On meshes with both.
  kReduceScatterAllReduce = 4,
};

/// `all-reduce`, `all-gather` and so on. Throws kInvalidArgument for another number.
std::string name(MixedOperation operation);

/// The schedule of an operation. Mixed::explain lists the steps.
enum class MixedMode : std::uint32_t {
  /// Chosen for the size by the tuning of the communicator, or by the built-in table.
  kAuto = 0,
  /// Each rank of a host receives all data that it reduces, and each host receives all data from the other hosts.
  kOneShot = 1,
  /// Each rank of a host reduces a share, which is sent to all hosts; each host reduces the shares of all hosts.
  kTwoShot = 2,
  /// As two-shot, but each host also reduces a share only and forwards it. On meshes whose tensor groups span hosts.
  kTwoShotAcross = 3,
  /// One collective over the world, followed by reductions in rank order.
  kOneCollective = 4,
  /// A collective of the tensor group and one of the data group. On meshes with both.
  kTwoCollectives = 5,
};

/// `auto`, `one-shot` and so on. Throws kInvalidArgument for another number.
std::string name(MixedMode mode);

/// The settings of a Mixed, equal on all ranks.
struct MixedConfig {
  Grid grid{};
  /// Bytes of the largest `x` or slice that is processed in one piece. The workspace is sized for it.
  std::size_t most_bytes = std::size_t{1} << 20;

  /// Bytes of heap that the workspace takes on each rank, for `local` ranks on each of `hosts` hosts. Throws
  /// kInvalidArgument for a mesh that does not fit, with the arithmetic, for no ranks or hosts, for more than 16 ranks
  /// of a host or 256 in all, and for `most_bytes` beyond 1 TiB.
  std::uint64_t required_bytes(std::size_t local, std::size_t hosts) const;
};

/// The settings of a call, equal on all ranks.
struct MixedOptions {
  MixedMode mode = MixedMode::kAuto;
  /// An average needs a mode that rounds once.
  Reduction reduction = Reduction::kSum;
  /// If data ranks have unequal numbers of tokens: the elements of `x`, or of the slice, of each data rank. The blocks
  /// of the other operand are contiguous.
  std::optional<std::vector<std::size_t>> rows{};
};

/// Collectives over a mesh of tensor and data parallelism. Move-only; usable from any thread, one call at a time.
///
/// All ranks make the same calls in the same order. A call enqueues, unless a step between hosts goes through the CPU:
/// then the call blocks, and cannot be captured. A call or a launch of a graph on another stream waits for the previous
/// one, because all share the workspace. A graph keeps the workspace. All ranks of a tensor group end with equal bits.
class Mixed {
 public:
  /// Makes the groups of a mesh over the ranks of `world`, and a workspace from the heap of the ranks of this host.
  /// Collective; blocks. Throws kMismatch if ranks differ in settings; kInvalidArgument for a mesh that does not fit
  /// the hosts; kUnsupported if hosts have unequal numbers of ranks; kOutOfMemory for a workspace that does not fit the
  /// heap; otherwise the errors of Coordinator::split.
  static Mixed open(const Coordinator& world, const MixedConfig& config = MixedConfig());

  Mixed(Mixed&&) noexcept = default;
  Mixed& operator=(Mixed&&) noexcept = default;

  /// This rank's number among the ranks that hold parts of one tensor, and the number of these ranks.
  std::size_t tensor_rank() const;
  std::size_t tensor_size() const;
  /// This rank's number among the ranks that work on different data, and the number of these ranks.
  std::size_t data_rank() const;
  std::size_t data_size() const;

  /// The operations of this mesh.
  std::vector<MixedOperation> operations() const;
  /// The modes of an operation on this mesh, without kAuto; none if the mesh does not support the operation.
  std::vector<MixedMode> modes(MixedOperation operation) const;
  /// The mode that kAuto selects for a sum of `bytes` bytes of `x` or of a slice: from the tuning of the communicator
  /// (Config::tuning) for this mesh, else from the built-in table. `direct`: whether peers can address the operands. A
  /// call with a step that no backend serves in this mode uses another mode. Equal on all ranks. Throws kUnsupported
  /// for an operation that this mesh does not support.
  MixedMode select(MixedOperation operation, Dtype dtype, bool direct, std::uint64_t bytes) const;
  /// The steps of an operation in a mode, as text, in order. Throws kUnsupported for an operation or mode that this
  /// mesh does not support, with those that it supports.
  std::vector<std::string> explain(MixedOperation operation, MixedMode mode) const;

  /// Runs an operation on operands of one type. `output` may be `input` in an all-reduce.
  ///
  /// Throws kUnsupported for an operation or a mode that this mesh does not support, with those that it supports, for
  /// an average in a mode that rounds more than once, for such a mode under Determinism::kExact, for a capture if a
  /// step blocks, and for a step that no backend serves, or none with the transport of the configuration;
  /// kInvalidArgument for lengths that do not fit each other or `rows`, operands that overlap or whose types differ,
  /// and a message of which not even a piece fits the workspace; kClosed after close; otherwise the errors of the
  /// steps' operations. Nothing is enqueued then.
  void perform(MixedOperation operation, ConstOperand input, Operand output, Queue queue,
               const MixedOptions& options = MixedOptions()) const;

  /// The operations by their names. Each throws the errors of perform.
  void all_reduce(ConstOperand input, Operand output, Queue queue, const MixedOptions& options = MixedOptions()) const {
    perform(MixedOperation::kAllReduce, input, output, queue, options);
  }
  void all_gather(ConstOperand input, Operand output, Queue queue, const MixedOptions& options = MixedOptions()) const {
    perform(MixedOperation::kAllGather, input, output, queue, options);
  }
  void reduce_scatter(ConstOperand input, Operand output, Queue queue, const MixedOptions& options = MixedOptions()) const {
    perform(MixedOperation::kReduceScatter, input, output, queue, options);
  }
  void all_reduce_all_gather(ConstOperand input, Operand output, Queue queue, const MixedOptions& options = MixedOptions()) const {
    perform(MixedOperation::kAllReduceAllGather, input, output, queue, options);
  }
  void reduce_scatter_all_reduce(ConstOperand input, Operand output, Queue queue, const MixedOptions& options = MixedOptions()) const {
    perform(MixedOperation::kReduceScatterAllReduce, input, output, queue, options);
  }

  /// Blocks until all work of `stream` is done. Throws the error of the first group of the mesh that failed, and
  /// kMismatch if ranks made different calls; kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;
  /// Closes the groups of the mesh; the world stays open. Collective; blocks. Throws the first error of a group that
  /// had failed, and kClosed if the mesh is closed. Throws kUnsupported in work that a call of one of these groups
  /// runs; nothing is closed then.
  void close() const;

 private:
  explicit Mixed(std::shared_ptr<core::MixedGrid> core) : core_(std::move(core)) {}

  std::shared_ptr<core::MixedGrid> core_;
};

}  // namespace symmetra
