/// \file
/// GEMMs fused with collectives, for tensor parallel layers: all-gather + matmul, matmul + reduce-scatter, matmul +
/// all-reduce.
/// docs/matmul.md has the formulas.
///
/// A plan is made once for a shape, by all ranks together, and enqueued any number of times: eagerly, or in a graph. A
/// plan runs the collective and the GEMM one after the other (sequence), or part by part (pipeline), so that copy
/// engines move a part while the multiprocessors compute another. PyTorch's asynchronous tensor parallelism and
/// TransformerEngine's userbuffers do the same.
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

/// The schedule of a plan. The numbers are stable.
enum class Way : std::uint32_t {
  /// Chosen by a model of the times: a pipeline if it is at least 1 % faster. On the CPU a sequence.
  kAuto = 0,
  /// The collective and the GEMM one after the other.
  kSequence = 1,
  /// Part by part: a part is multiplied while copy engines move others. Needs symmetra kernels, more than one rank,
  /// equally many rows for each rank, and contiguous parts: the cut dimension is the first that is not 1, and not the
  /// last.
  kPipeline = 2,
};

/// `auto`, `sequence` or `pipeline`. Throws kInvalidArgument for another number.
std::string name(Way way);

/// The settings of a plan, equal on all ranks.
struct FusedOptions {
  FusedOptions(Way how = Way::kAuto, Reduction combine = Reduction::kSum) : way(how), reduction(combine) {}

  /// The schedule of the plan.
  Way way;
  /// The reduction of the partial products of the ranks: kSum or kAverage.
  Reduction reduction;
  /// The length of each rank's part along the cut dimension. Unset: equal parts. Unequal parts need a cut dimension
  /// that is only preceded by dimensions of length 1.
  std::optional<std::vector<std::size_t>> rows{};
};

/// The schedule of a plan, and the reason.
struct Planned {
  Way way;            ///< not kAuto
  std::size_t parts;  ///< the number of parts that are multiplied one by one
  /// The library that multiplies.
  std::string library;
  /// The modelled time of one call with this schedule, in microseconds; unset on the CPU.
  std::optional<double> predicted_us;
  /// The longer of the modelled times of the GEMM alone and of the copies alone, in microseconds; unset on the CPU.
  std::optional<double> bound_us;
  /// The reason for this schedule.
  std::string reason;
};

/// A plan of `result_i = gathered right_i`: the shards of all ranks are gathered along a dimension, and the gathered
/// tensor is multiplied by one or more right factors. Made by Collectives::plan_all_gather_matmul; for any number of
/// layers of the same shape. Move-only; usable from any thread.
///
/// All ranks enqueue the same plans in the same order. Calls of a plan on several streams, and launches of graphs that
/// contain them, run one after another. While a thread launches such a graph, no other thread calls the plan. A graph
/// shares ownership of the plan. The plan may be destroyed before the work that it enqueued is done, and after its
/// group is closed.
class AllGatherMatmul {
 public:
  AllGatherMatmul(AllGatherMatmul&&) noexcept = default;
  AllGatherMatmul& operator=(AllGatherMatmul&&) noexcept = default;

  /// Enqueues the all-gather and the GEMMs, and returns; operands are used in stream order. `shard` is this rank's part
  /// of the left factor, with its scales; `gathered`, if given, receives the whole left factor; `products` are right
  /// factor and result of each product, in the order of the plan. Results have as many rows as the gathered tensor. A
  /// symmetric shard lies at the same offset on every rank. `gathered` is given on all ranks or on none. The shard may
  /// be this rank's part of `gathered`, if parts are equal and contiguous. On Backend::kHost the call blocks until its
  /// result is complete.
  ///
  /// Throws kInvalidArgument for another number of products than the plan's, operands whose type, length or device does
  /// not fit, a shard of 8-bit floats that does not begin at a multiple of 16 bytes, scales or a bias that are missing
  /// or needless, and memory that is written and overlaps another operand; kUnsupported on a stream that is being
  /// captured; then nothing is enqueued. Otherwise throws the errors of Collectives::all_gather and
  /// Multiplier::enqueue.
  void enqueue(const Factor& shard, const std::optional<Operand>& gathered, const std::vector<std::pair<Factor, Operand>>& products,
               Queue queue) const;

  /// The schedule of the plan, and the reason.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. `shard` is the
  /// shard of rank 0. Does not communicate. Throws the errors of Collectives::plan_all_gather_matmul for arguments that
  /// are invalid on this rank alone.
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

  /// Enqueues the GEMM and the reduce-scatter, and returns; operands are used in stream order. `right` has the bias if
  /// the product has one, on every rank. `result` is this rank's part. On Backend::kHost the call blocks until its
  /// result is complete.
  ///
  /// Throws kInvalidArgument for operands whose type, length or device does not fit, scales or a bias that are missing
  /// or needless, and a result that overlaps another operand; kUnsupported on a stream that is being captured; then
  /// nothing is enqueued. Otherwise throws the errors of Collectives::reduce_scatter and Multiplier::enqueue.
  void enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const;

  /// The schedule of the plan, and the reason.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. Does not
  /// communicate. Throws the errors of Collectives::plan_matmul_reduce_scatter for arguments that are invalid on this
  /// rank alone.
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

  /// Enqueues the GEMM and the all-reduce, and returns; operands are used in stream order. `right` has the bias if the
  /// product has one, on every rank. On Backend::kHost the call blocks until its result is complete.
  ///
  /// Throws kInvalidArgument for operands whose type, length or device does not fit, scales or a bias that are missing
  /// or needless, and a result that overlaps another operand; kUnsupported on a stream that is being captured; then
  /// nothing is enqueued. Otherwise throws the errors of Collectives::all_reduce and Multiplier::enqueue.
  void enqueue(const Factor& left, const Factor& right, Operand result, Queue queue) const;

  /// The schedule of the plan, and the reason.
  Planned explain() const;

  /// The most bytes of the symmetric heap that such a plan takes on each rank, for Config::heap_bytes. Does not
  /// communicate. Throws the errors of Collectives::plan_matmul_all_reduce for arguments that are invalid on this rank
  /// alone.
  static std::uint64_t heap_bytes(std::size_t world_size, const std::vector<std::size_t>& left, const Product& product,
                                  const FusedOptions& options = {});

 private:
  friend class Collectives;
  explicit MatmulAllReduce(std::shared_ptr<core::SummingPlan> core) : core_(std::move(core)) {}

  std::shared_ptr<core::SummingPlan> core_;
};

}  // namespace symmetra
