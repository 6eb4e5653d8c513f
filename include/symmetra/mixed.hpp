/// \file
/// Collectives over grids of tensor and data parallelism, inside hosts and across hosts. docs/mixed.md has the tables of operations, modes
/// and roundings. Grids have run on the host device, on one host and on several; on one GPU that ranks share; and on 2 and 4 GPUs, as one
/// host and as two by name.
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

/// How ranks and hosts divide. Of the two sizes of a level, one that is missing is what the other leaves; where both are missing the level
/// is tensor parallel. Tensor varies fastest on both levels. The world may be numbered in any order.
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

/// An operation over a grid. N: elements of `x` or of a slice; dp: the number of data ranks.
enum class MixedOperation : std::uint32_t {
  /// N -> N: the reduction over all ranks. On grids without data parallelism.
  kAllReduce = 0,
  /// N -> dp N: block d is `x` of data rank d. On grids without tensor parallelism.
  kAllGather = 1,
  /// dp N -> N: the reduction over all ranks of the slice of the own data rank. On grids without tensor parallelism.
  kReduceScatter = 2,
  /// N -> dp N: block d is the reduction over the ranks of data rank d. On grids with both.
  kAllReduceAllGather = 3,
  /// dp N -> N: the reduction over all ranks of the slice of the own data rank. On grids with both.
  kReduceScatterAllReduce = 4,
};

/// `all-reduce`, `all-gather` and so on. Throws kInvalidArgument for another number.
std::string name(MixedOperation operation);

/// How an operation runs. Mixed::explain says the steps.
enum class MixedMode : std::uint32_t {
  /// What the tuning of the communicator, or the built-in table, chooses for the size.
  kAuto = 0,
  /// Each rank of a host gets all that it reduces, and each host gets all from the hosts.
  kOneShot = 1,
  /// Each rank of a host reduces a share, which goes to all hosts; each host reduces all.
  kTwoShot = 2,
  /// As two-shot, but hosts too reduce a share each and hand it on. On grids whose tensor groups span hosts.
  kTwoShotAcross = 3,
  /// One collective over the world, and reductions in rank order behind it.
  kOneCollective = 4,
  /// A collective of the tensor group and one of the data group. On grids with both.
  kTwoCollectives = 5,
};

/// `auto`, `one-shot` and so on. Throws kInvalidArgument for another number.
std::string name(MixedMode mode);

/// The settings of a Mixed, equal on all ranks.
struct MixedConfig {
  Grid grid{};
  /// Bytes of the largest `x` or slice that goes in one piece. The workspace is made for it.
  std::size_t most_bytes = std::size_t{1} << 20;

  /// Bytes of heap that the workspace takes of each rank, for `local` ranks on each of `hosts` hosts. Throws kInvalidArgument for a grid
  /// that does not fit, with the arithmetic, for no ranks or hosts, for more than 16 ranks of a host or 256 in all, and for `most_bytes`
  /// beyond 1 TiB.
  std::uint64_t required_bytes(std::size_t local, std::size_t hosts) const;
};

/// The settings of a call, equal on all ranks.
struct MixedOptions {
  MixedMode mode = MixedMode::kAuto;
  /// An average runs in modes that round once.
  Reduction reduction = Reduction::kSum;
  /// Where data ranks have unequally many tokens: the elements of `x`, or of the slice, of each data rank. The blocks of the other operand
  /// follow each other.
  std::optional<std::vector<std::size_t>> rows{};
};

/// Collectives over a grid of tensor and data parallelism. Move-only; usable from any thread, one call at a time.
///
/// All ranks make the same calls in the same order. A call enqueues, unless a step goes through the CPU between hosts: then the call
/// blocks, and cannot be captured. A call or a launch of a graph on another stream waits for the one before, because all share the
/// workspace. A graph keeps the workspace. All ranks of a tensor group end with equal bits.
class Mixed {
 public:
  /// Makes the groups of a grid over the ranks of `world`, and a workspace from the heap of the ranks of this host. Collective; blocks.
  /// Throws kMismatch where ranks differ in settings; kInvalidArgument for a grid that does not fit the hosts; kUnsupported where hosts
  /// have unequal numbers of ranks; kOutOfMemory for a workspace beyond the heap; else what Coordinator::split throws.
  static Mixed open(const Coordinator& world, const MixedConfig& config = MixedConfig());

  Mixed(Mixed&&) noexcept = default;
  Mixed& operator=(Mixed&&) noexcept = default;

  /// This rank's number among the ranks that hold parts of one tensor, and how many these are.
  std::size_t tensor_rank() const;
  std::size_t tensor_size() const;
  /// This rank's number among the ranks that work on different data, and how many these are.
  std::size_t data_rank() const;
  std::size_t data_size() const;

  /// The operations of this grid.
  std::vector<MixedOperation> operations() const;
  /// The modes of an operation on this grid, without kAuto; none if the grid does not have the operation.
  std::vector<MixedMode> modes(MixedOperation operation) const;
  /// The mode that kAuto stands for in a sum, for so many bytes of `x` or of a slice: what the tuning of the communicator (Config::tuning)
  /// has for this grid, else an estimate. `direct`: whether peers can address input and output. A call of which nothing serves a step in
  /// this mode goes by another. Equal on all ranks. Throws kUnsupported for an operation that this grid does not have.
  MixedMode select(MixedOperation operation, Dtype dtype, bool direct, std::uint64_t bytes) const;
  /// The steps of an operation in a mode, in words, in order. Throws kUnsupported for what this grid does not have, with what it has.
  std::vector<std::string> explain(MixedOperation operation, MixedMode mode) const;

  /// Runs an operation on operands of one type. `output` may be `input` in an all-reduce.
  ///
  /// Throws kUnsupported for an operation or a mode that this grid does not have, with what it has, for an average in a mode that rounds
  /// more than once, for such a mode under Determinism::kExact, for a capture where a step blocks, and for a step that nothing serves, or
  /// not by the transport of the configuration; kInvalidArgument for lengths that do
  /// not fit each other or `rows`, operands that overlap or whose types differ, and a message of which not even a piece fits the workspace;
  /// kClosed after close; else what the steps' operations throw. Nothing is enqueued then.
  void perform(MixedOperation operation, ConstOperand input, Operand output, Queue queue,
               const MixedOptions& options = MixedOptions()) const;

  /// The operations by their names. Each throws what perform throws.
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

  /// Blocks until all work of `stream` is done. Throws the error of the first group of the grid that failed, and kMismatch if ranks made
  /// different calls; kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;
  /// Closes the groups of the grid; the world stays open. Collective; blocks. Throws the first error of a group that had failed, and
  /// kClosed when the grid is closed. Throws kUnsupported in work that a call of one of these groups runs; nothing is closed then.
  void close() const;

 private:
  explicit Mixed(std::shared_ptr<core::MixedGrid> core) : core_(std::move(core)) {}

  std::shared_ptr<core::MixedGrid> core_;
};

}  // namespace symmetra
