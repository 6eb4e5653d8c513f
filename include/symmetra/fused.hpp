/// \file
/// Products fused with collectives, for tensor parallel layers: all-gather + matmul, matmul + reduce-scatter, matmul + all-reduce.
/// docs/matmul.md has the formulas.
///
/// A plan is made once for a shape, by all ranks together, and enqueued any number of times: eagerly, or in a graph. A plan runs the
/// collective and the product one after the other, or part by part, so that copy engines move a part while the multiprocessors multiply
/// another. PyTorch's asynchronous tensor parallelism and TransformerEngine's userbuffers do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/capture.hpp"
#include "symmetra/matmul.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class Collectives;

namespace core {
struct GatheringPlan;
struct SummingPlan;
}  // namespace core

/// How a plan runs. The numbers are stable.
enum class Way : std::uint32_t {
  /// By a model of the times: part by part where that is at least 1 % faster. On the CPU one after the other.
  kAuto = 0,
  /// The collective and the product one after the other.
  kSequence = 1,
  /// Part by part: a part is multiplied while copy engines move others. Needs own kernels, more than one rank, as many rows for each rank,
  /// and parts that are contiguous: the cut dimension is the first that is not 1, and not the last.
  kPipeline = 2,
};

/// `auto`, `sequence` or `pipeline`. Throws kInvalidArgument for another number.
std::string name(Way way);

/// The settings of a plan, equal on all ranks.
struct FusedOptions {
  FusedOptions(Way how = Way::kAuto, Reduction combine = Reduction::kSum) : way(how), reduction(combine) {}

  /// How the plan runs.
  Way way;
  /// How the partial products of the ranks are combined: kSum or kAverage.
  Reduction reduction;
  /// The length of each rank's part along the cut dimension. Unset: equal parts. Unequal parts are for a cut dimension before which there
  /// is no dimension other than 1.
  std::optional<std::vector<std::size_t>> rows{};
};

/// How a plan runs, and why.
struct Planned {
  Way way;            ///< not kAuto
  std::size_t parts;  ///< how many parts are multiplied one by one
  /// What multiplies.
  std::string library;
  /// What the model says of one call of this way, in microseconds; unset on the CPU.
  std::optional<double> predicted_us;
  /// The longer of the product alone and of the copies alone, by the model, in microseconds; unset on the CPU.
  std::optional<double> bound_us;
  /// Why this way.
  std::string reason;
};

/// A plan of `result_i = gathered right_i`: the shards of all ranks are gathered along a dimension, and the whole is multiplied by one or
/// more right factors. Made by Collectives::plan_all_gather_matmul; for any number of layers of the same shape. Move-only; usable from any
/// thread.
///
/// All ranks enqueue the same plans in the same order. Calls of a plan on several streams, and launches of graphs that hold them, run one
/// after another. While a thread launches such a graph, no other thread calls the plan. A graph shares ownership of the plan. The plan may
/// be destroyed before the work that it enqueued is done, and after its group is closed.
class AllGatherMatmul {
 public:
  AllGatherMatmul(AllGatherMatmul&&) noexcept = default;
  AllGatherMatmul& operator=(AllGatherMatmul&&) noexcept = default;

  /// Enqueues the all-gather and the products, and returns; operands are used in stream order. `shard` is this rank's part of the left
  /// factor, with its scales; `gathered`, if given, receives the whole left factor; `products` are right factor and result of each product,
  /// in the order of the plan. Results have as many rows as the whole. A symmetric shard lies at the same offset on every rank. `gathered`
  /// is given on all ranks or on none. The shard may be this rank's part of `gathered`, if parts are equal and contiguous. On
  /// Backend::kHost the call blocks until its result is complete.
  ///
  /// Throws kInvalidArgument for another number of products than the plan's, operands whose type, length or device does not fit, a shard of
  /// 8-bit floats that does not begin at a multiple of 16 bytes, scales or a bias that are missing or needless, and memory that is written
  /// and overlaps another operand; kUnsupported on a stream that is being captured; then nothing is enqueued. Else throws what
  /// Collectives::all_gather and Multiplier::enqueue throw.
  void enqueue(const Factor& shard, const std::optional<Operand>& gathered, const std::vector<std::pair<Factor, Operand>>& products,
               Queue queue) const;

  /// How the plan runs, and why.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. `shard` is that of rank 0. Needs no
  /// ranks. Throws what Collectives::plan_all_gather_matmul throws for arguments that are wrong by themselves.
  static std::uint64_t heap_bytes(std::size_t world_size, const std::vector<std::size_t>& shard, std::size_t dim,
                                  const std::vector<Product>& products, const FusedOptions& options = {});

 private:
  friend class Collectives;
  explicit AllGatherMatmul(std::shared_ptr<core::GatheringPlan> core) : core_(std::move(core)) {}

  std::shared_ptr<core::GatheringPlan> core_;
};

/// A plan of `result = this rank's part of the sum over the ranks of left right`. Made by Collectives::plan_matmul_reduce_scatter; for any
/// number of layers of the same shape. Move-only; usable from any thread.
///
/// All ranks enqueue the same plans in the same order. Calls of a plan on several streams, and launches of graphs that hold them, run one
/// after another. While a thread launches such a graph, no other thread calls the plan. A graph shares ownership of the plan. The plan may
/// be destroyed before the work that it enqueued is done, and after its group is closed.
class MatmulReduceScatter {
 public:
  MatmulReduceScatter(MatmulReduceScatter&&) noexcept = default;
  MatmulReduceScatter& operator=(MatmulReduceScatter&&) noexcept = default;

  /// Enqueues the product and the reduce-scatter, and returns; operands are used in stream order. `right` has the bias if the product has
  /// one, on every rank. `result` is this rank's part. On Backend::kHost the call blocks until its result is complete.
  ///
  /// Throws kInvalidArgument for operands whose type, length or device does not fit, scales or a bias that are missing or needless, and a
  /// result that overlaps another operand; kUnsupported on a stream that is being captured; then nothing is enqueued. Else throws what
  /// Collectives::reduce_scatter and Multiplier::enqueue throw.
  void enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const;

  /// How the plan runs, and why.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. Needs no ranks. Throws what
  /// Collectives::plan_matmul_reduce_scatter throws for arguments that are wrong by themselves.
  static std::uint64_t heap_bytes(std::size_t world_size, const std::vector<std::size_t>& left, std::size_t dim, const Product& product,
                                  const FusedOptions& options = {});

 private:
  friend class Collectives;
  explicit MatmulReduceScatter(std::shared_ptr<core::SummingPlan> core) : core_(std::move(core)) {}

  std::shared_ptr<core::SummingPlan> core_;
};

/// A plan of `result = the sum over the ranks of left right`. Made by Collectives::plan_matmul_all_reduce; for any number of layers of the
/// same shape. Move-only; usable from any thread.
///
/// All ranks enqueue the same plans in the same order. Calls of a plan on several streams, and launches of graphs that hold them, run one
/// after another. While a thread launches such a graph, no other thread calls the plan. A graph shares ownership of the plan. The plan may
/// be destroyed before the work that it enqueued is done, and after its group is closed.
class MatmulAllReduce {
 public:
  MatmulAllReduce(MatmulAllReduce&&) noexcept = default;
  MatmulAllReduce& operator=(MatmulAllReduce&&) noexcept = default;

  /// Enqueues the product and the all-reduce, and returns; operands are used in stream order. `right` has the bias if the product has one,
  /// on every rank. On Backend::kHost the call blocks until its result is complete.
  ///
  /// Throws kInvalidArgument for operands whose type, length or device does not fit, scales or a bias that are missing or needless, and a
  /// result that overlaps another operand; kUnsupported on a stream that is being captured; then nothing is enqueued. Else throws what
  /// Collectives::all_reduce and Multiplier::enqueue throw.
  void enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const;

  /// How the plan runs, and why.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. Needs no ranks. Throws what
  /// Collectives::plan_matmul_all_reduce throws for arguments that are wrong by themselves.
  static std::uint64_t heap_bytes(std::size_t world_size, const std::vector<std::size_t>& left, const Product& product,
                                  const FusedOptions& options = {});

 private:
  friend class Collectives;
  explicit MatmulAllReduce(std::shared_ptr<core::SummingPlan> core) : core_(std::move(core)) {}

  std::shared_ptr<core::SummingPlan> core_;
};

}  // namespace symmetra
