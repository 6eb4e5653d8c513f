/// \file
/// The operations of a group, for Communicator and Coordinator.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "symmetra/bound.hpp"
#include "symmetra/capture.hpp"
#include "symmetra/experts.hpp"
#include "symmetra/fused.hpp"
#include "symmetra/matmul.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/norm.hpp"
#include "symmetra/pending.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

namespace core {
struct GroupHandle;
}  // namespace core

/// One message of a batch, or between a pair of ranks.
class Message {
 public:
  static Message send(ConstOperand operand, std::size_t peer) { return {operand, peer, true}; }
  static Message receive(Operand operand, std::size_t peer) { return {operand, peer, false}; }

 private:
  friend class Collectives;
  Message(ConstOperand operand, std::size_t peer, bool sends) : operand_(operand), peer_(peer), sends_(sends) {}

  ConstOperand operand_;
  std::size_t peer_;
  bool sends_;
};

/// The operations of a group: the base of Communicator and Coordinator. Ranks, roots and peers are numbered in the group.
///
/// A collective enqueues and returns, and allocates nothing on success, except for messages; the operands are used in
/// stream order. Any number of elements, including 0; any element-aligned address. Operands must not overlap, except in
/// the in-place form of the operation. An input may be const: no call writes to a ConstOperand. On Backend::kHost a
/// call blocks until its result is complete.
///
/// A collective throws kInvalidArgument for operands of different types, of lengths that do not fit each other or do
/// not divide, of another device, null or misaligned, or that overlap, for a root or peer outside the group, and for a
/// root without its operand; kUnsupported if the algorithm or Config::transport does not support the type or memory,
/// and if no backend serves the call; kClosed after close; the group's error if the group has failed; kDevice if the
/// launch fails.
class Collectives {
 public:
  using Message = symmetra::Message;

  /// Reduces `input` over all ranks into `output`, which has the same number of elements. The default is a sum.
  ///
  /// The bits are equal on all ranks and from run to run, as defined by Reduction. The ring and recursive doubling
  /// reduce floating types in another order and round at every rank, unless Config::determinism forbids these
  /// algorithms. Over one rank the result is the input. Both operands may be the same memory. Only symmetra kernels
  /// serve a call that names an algorithm or a codec.
  void all_reduce(ConstOperand input, Operand output, Queue queue, AllReduceOptions options = AllReduceOptions()) const;
  /// Reduces `buffer` over all ranks in place.
  void all_reduce(Operand buffer, Queue queue, AllReduceOptions options = AllReduceOptions()) const {
    all_reduce(buffer, buffer, queue, options);
  }
  /// Reduces `count` elements at `input` over all ranks into `output`.
  template <class In, class Out>
  void all_reduce(const In* input, Out* output, std::size_t count, Queue queue, AllReduceOptions options = AllReduceOptions()) const {
    static_assert(std::is_same_v<In, std::remove_const_t<Out>>, "input and output have one element type");
    all_reduce(ConstOperand(input, count), Operand(output, count), queue, options);
  }
  /// Binds an all-reduce to its operands: checks and plans the call once, for any number of BoundAllReduce::enqueue.
  /// Not collective; does not block. Memory given by address must stay valid as long as the result and all work that
  /// the result enqueued. Only symmetra kernels serve bound calls. Throws the errors of all_reduce, except errors of a
  /// stream.
  BoundAllReduce bind_all_reduce(ConstOperand input, Operand output, AllReduceOptions options = AllReduceOptions()) const;

  /// Sums rows over all ranks, adds a residual, and norms each row. With T the type of the rows, T(v) a value rounded to T, and each other
  /// step rounded to f32:
  ///
  ///     s = T(sum of all ranks)      x = T(s + residual), or s      residual_out = x
  ///     r = 1 / sqrt(sum of x x / length + epsilon)                 output = T((x (weight + weight_offset)) r)
  ///
  /// LayerNorm, with m = sum of x / length and d = x - m:
  ///
  ///     r = 1 / sqrt(sum of d d / length + epsilon)                 output = T((d (weight + weight_offset)) r + bias)
  ///
  /// The values of a row are added in an order that depends on the row's length only. So a call has the bits of an
  /// all-reduce followed by a norm, and the bits of a row depend only on its own values, the residual, the weight, the bias and
  /// the order of the sum over ranks. If the all-reduces of a coordinator use a codec, so does the sum, if it has a
  /// place in one piece. Rows are f16, bf16 or f32, of 1 to 2^20 elements; any number of rows. At least one of output,
  /// residual_out and quantised is given. `residual`, `weight` and `bias` have equal contents on every rank. Only these may be
  /// the same memory: residual and residual_out; input and output; input and residual_out.
  ///
  /// Quantised rows are the quantised values of the output; the formulas are at Scaling.
  ///
  /// Throws kUnsupported also for a bias of another type than the weight or of RMSNorm, if the sum has no place (no output, and no
  /// residual_out other than the residual) and no kernel that sums and norms at once serves the call: on other backends, with other
  /// algorithms, and for rows that do not fit its scratch; kInvalidArgument also for no output, an epsilon that is below 0 or NaN, an
  /// output narrower than a row or wider than 2^31, and an invalid format or one whose operands have other types.
  void all_reduce_norm(const RowNorm& rows, Queue queue) const { norm("all-reduce-norm", rows, queue); }
  /// Sums rows over all ranks, and adds a residual to this rank's share of the rows and norms it: part r of the rows
  /// for rank r. The bits are those of a reduce-scatter, an addition and a norm one after the other. The input has the
  /// rows of all ranks; residual, residual_out and output have those of this rank's share. Only these may be the same
  /// memory: residual and residual_out; this rank's part of input, and output or residual_out.
  ///
  /// Throws the errors of all_reduce_norm; kInvalidArgument also if the number of rows is not a multiple of the world
  /// size; kUnsupported also for a named algorithm other than kTwoShotSentinel, or if its scratch has no capacity for a
  /// row.
  void reduce_scatter_norm(const RowNorm& rows, Queue queue) const { norm("reduce-scatter-norm", rows, queue); }
  /// Sums rows over all ranks, adds a residual that stays scattered, norms each row, and gathers the normed rows. The
  /// bits are those of a reduce_scatter_norm and an all_gather. Input and output have the rows of all ranks; residual
  /// and residual_out have those of this rank's share: part r of the rows for rank r. Only these may be the same
  /// memory: residual and residual_out; input and output; this rank's part of input, and residual_out. Throws the
  /// errors of reduce_scatter_norm, but kTwoShotZeroCopy is also supported if peers can address input, output,
  /// quantised values and scales, and if there is an output or rows have at most 1024 packets of 16 bytes. Quantised
  /// values without an output are kUnsupported unless one kernel serves the whole call.
  void reduce_scatter_norm_all_gather(const RowNorm& rows, Queue queue) const { norm("reduce-scatter-norm-all-gather", rows, queue); }

  /// Writes the `input` of every rank, in rank order, into the `output` of every rank, which has world size times as
  /// many elements. In place: `input` is this rank's part of `output`.
  void all_gather(ConstOperand input, Operand output, Queue queue) const { run("all-gather", input, output, queue); }
  /// All-gather along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the shape with shape[dim] times the
  /// world size. Nothing is copied before or after.
  void all_gather_along(std::size_t dim, const std::vector<std::size_t>& shape, ConstOperand input, Operand output, Queue queue) const;

  /// All-gather in which each rank has its own count: `input` has counts[rank] elements, and `output` the sum of the counts. All ranks pass
  /// the same counts. A count may be 0. In place: `input` is this rank's part of `output`. If ranks pass different counts, the call throws
  /// kMismatch with Config::check_calls and on Backend::kHost, else later calls do.
  void all_gather_v(ConstOperand input, Operand output, const std::vector<std::size_t>& counts, Queue queue) const {
    run("all-gather-v", input, output, queue, Reduction::kSum, 0, counts);
  }

  /// Reduces `input` over all ranks, in rank order and rounded once, and writes this rank's part of the result into
  /// `output`; `input` has world size times as many elements. In place: `output` is this rank's part of `input`.
  void reduce_scatter(ConstOperand input, Operand output, Reduction reduction, Queue queue) const {
    run("reduce-scatter", input, output, queue, reduction);
  }
  /// Reduce-scatter along dimension `dim` of a row-major tensor: `input` has this `shape`, and `output` the shape with shape[dim] divided
  /// by the world size. Nothing is copied before or after.
  void reduce_scatter_along(std::size_t dim, const std::vector<std::size_t>& shape, ConstOperand input, Operand output, Reduction reduction,
                            Queue queue) const;

  /// Reduce-scatter in which each rank has its own count: `input` has the sum of the counts, and `output` has counts[rank] elements. All
  /// ranks pass the same counts, as in all_gather_v. In place: `output` is this rank's part of `input`.
  void reduce_scatter_v(ConstOperand input, Operand output, const std::vector<std::size_t>& counts, Reduction reduction,
                        Queue queue) const {
    run("reduce-scatter-v", input, output, queue, reduction, 0, counts);
  }

  /// Cuts `input` into a part for every rank, and fills `output` with the part from every rank, in rank order. Both
  /// have the same number of elements, a multiple of the world size.
  void all_to_all(ConstOperand input, Operand output, Queue queue) const { run("all-to-all", input, output, queue); }
  /// All-to-all with a count of elements for each rank; parts are contiguous in either operand. If sender and receiver
  /// differ in a count, later calls of every rank throw kMismatch, which names both ranks, and all outputs are
  /// undefined; NCCL does not compare the counts.
  void all_to_all_v(ConstOperand input, const std::vector<std::size_t>& send_counts, Operand output,
                    const std::vector<std::size_t>& receive_counts, Queue queue) const;

  /// Copies the `buffer` of rank `root` into the buffer of every other rank.
  void broadcast(Operand buffer, std::size_t root, Queue queue) const {
    run("broadcast", std::nullopt, buffer, queue, Reduction::kSum, root);
  }

  /// Reduces `input` over all ranks, in rank order and rounded once, into the `output` of rank `root`; `output` is ignored on other ranks.
  /// The root's operands may be the same memory.
  void reduce(ConstOperand input, std::optional<Operand> output, Reduction reduction, std::size_t root, Queue queue) const {
    run("reduce", input, output, queue, reduction, root);
  }
  /// Reduces `buffer` over all ranks into the `buffer` of rank `root`. The same operation as the form above: ranks may
  /// mix the forms.
  void reduce(Operand buffer, Reduction reduction, std::size_t root, Queue queue) const { reduce(buffer, buffer, reduction, root, queue); }

  /// Puts the `input` of every rank, in rank order, into the `output` of rank `root`, which has world size times as many elements; `output`
  /// is ignored on other ranks. In place: the root's `input` is its part of `output`.
  void gather(ConstOperand input, std::optional<Operand> output, std::size_t root, Queue queue) const {
    run("gather", input, output, queue, Reduction::kSum, root);
  }
  /// Cuts the `input` of rank `root` into a part for every rank and puts each part into that rank's `output`; `input` is ignored on other
  /// ranks. In place: the root's `output` is its part of `input`.
  void scatter(std::optional<ConstOperand> input, Operand output, std::size_t root, Queue queue) const {
    run("scatter", input, output, queue, Reduction::kSum, root);
  }

  /// Copies the `input` of every rank into the `output` of the rank that is `by` further, modulo the world size; `by`
  /// may be negative. `by` is the same on every rank. Both operands have the same number of elements.
  void shift(ConstOperand input, Operand output, std::ptrdiff_t by, Queue queue) const {
    run("shift", input, output, queue, Reduction::kSum, static_cast<std::size_t>(by));
  }

  /// Sends and receives `messages` as one operation. Every rank of the group takes part, even without a message. At
  /// most one message to, and one from, each rank. Sizes in bytes are compared first: if they differ, later calls of
  /// every rank throw kMismatch, and received data are undefined. NCCL does not compare sizes.
  void batch(const std::vector<Message>& messages, Queue queue) const { run(messages, false, queue); }

  /// Sends and receives `messages` as one operation, in which only the ranks of a pair take part: a rank without a
  /// message makes no call, and may make other calls concurrently. Any number of messages may go from one rank to
  /// another: messages of a pair match in order, within a call and from call to call. A message may have no bytes. A
  /// rank's message to itself is a copy; one call contains equally many sends and receives of such messages. The
  /// messages of a call progress concurrently. A call ends when the messages to this rank have arrived and those of
  /// this rank have left its memory: a sender waits for the receiver only if Config::pair_bytes is exhausted.
  ///
  /// If a peer has not enqueued any call of the communicator yet, and this rank no collective, the waits of a call may
  /// take Deadlines::first_use. Other waits take at most Deadlines::steady. A graph keeps the deadline that its waits
  /// had in the capture.
  ///
  /// A graph may contain messages; a rank without a message captures nothing. Ranks replay graphs and make other calls
  /// in any order in which the messages of each pair match. Throws kInvalidArgument also for received memory that the
  /// call also uses otherwise, and for messages of a rank to itself without an equal counterpart; kUnsupported for a
  /// group that spans hosts without NCCL; kPeerLost for a rank that left. If a message has different sizes at its two
  /// ends, later calls of every rank throw kMismatch, with both sizes, and received data are undefined. NCCL does not
  /// compare sizes.
  void pairs(const std::vector<Message>& messages, Queue queue) const { run(messages, true, queue); }

  /// all_gather by the copy engines, on a side stream that waits for `queue`: work enqueued after this call runs
  /// concurrently with the copies, up to Pending::wait. No multiprocessor moves data; each of the two barriers is a
  /// kernel of one block. No stream may touch either operand before the end. Only symmetra kernels serve this form. The
  /// call waits for `queue`, and not for calls of the communicator on other streams; nor do later calls on other
  /// streams wait for it.
  ///
  /// Each rank copies from the `input` of the others, if `input` is symmetric or registered memory at the same offset
  /// on every rank. Other memory is staged in a workspace of the same size in the symmetric heap; so is registered
  /// memory if ranks with GPUs are threads of one process. In place on every rank or on none. After a failed call,
  /// copies still read the inputs of peers: registered memory stays allocated until every rank has closed or destroyed
  /// its communicator.
  ///
  /// Throws the errors of all_gather; kUnsupported for a natively captured stream, and in a capture if the workspace is
  /// too small; kOutOfMemory if the heap has no gap for the workspace.
  Pending low_contention_all_gather(ConstOperand input, Operand output, Queue queue) const;
  /// reduce_scatter by the copy engines, with equal bits: see low_contention_all_gather. Each rank copies the parts of
  /// its `input` to the ranks that reduce them, into a workspace of the size of the input. A kernel then reduces the
  /// parts in rank order: only this step uses multiprocessors.
  Pending low_contention_reduce_scatter(ConstOperand input, Operand output, Reduction reduction, Queue queue) const;
  /// Makes a workspace in the symmetric heap for low-contention collectives of operands of up to `bytes` bytes. Collective; blocks. Without
  /// a large enough workspace, the next call makes one: that call is collective and blocks; a captured call is refused. Throws kOutOfMemory
  /// if the heap has no such gap, kMismatch if ranks request different sizes, kUnsupported for a group that spans hosts.
  void reserve_workspace(std::size_t bytes) const;

  /// Opens experts on the ranks of this group. If symmetra kernels serve the group, the experts take a part of the
  /// symmetric heap: expert_bytes computes its size. Collective; blocks. Throws kMismatch on every rank if settings
  /// differ; kInvalidArgument for a setting outside its limits; kUnsupported for Method::kDirect and kPackets if
  /// symmetra kernels do not serve the group, and for kPackets with more than 8192 tokens of all ranks or 2048 expert
  /// replicas; kOutOfMemory if the heap has no gap of that size, or the device no memory for the rest.
  Experts experts(const ExpertConfig& config) const;

  /// Plans an all-gather of shards of this shape along dimension `dim`, and the GEMMs of the gathered tensor with right
  /// factors. Collective; blocks: the ranks compare their arguments, find the library and allocate memory, so that
  /// later calls do not.
  ///
  /// The shard is [.., K], row-major; `dim` is any of its dimensions. Along the last dimension the gathered tensor is
  /// [.., world size x K], and `inner` of each product is that length; else `inner` is K. Products share the left
  /// factor: its type, its layout, which is kRows, and its scales. With Product::Scaling::kTensor the left factor has
  /// one scale, equal on all ranks. With kRows each shard has a scale for each of its rows, and scales are gathered
  /// too; if the last dimension is cut, a row's scale is the same on all ranks.
  ///
  /// The plan allocates the gathered tensor and its scales: from the symmetric heap if symmetra kernels serve the
  /// group, else from the device. A pipeline needs symmetra kernels.
  ///
  /// Throws kMismatch if ranks request different plans; kInvalidArgument for a shape of fewer than two dimensions, an
  /// invalid dimension, FusedOptions::rows that do not fit, no product, and a product that Multiplier::enqueue refuses;
  /// kUnsupported for a schedule that the shape or the group does not support, unequal parts after dimensions other
  /// than 1, and without a library; kOutOfMemory if the heap has no gap of that size.
  AllGatherMatmul plan_all_gather_matmul(const std::vector<std::size_t>& shard, std::size_t dim, const std::vector<Product>& products,
                                         const FusedOptions& options = FusedOptions()) const;
  /// Plans a GEMM on each rank, and the reduce-scatter of these partial products along dimension `dim` of the result.
  /// Collective; blocks: the ranks compare their arguments, find the library and allocate memory, so that later calls
  /// do not.
  ///
  /// The left factor is [.., K], row-major, and the product is [.., N], of which `dim` is any dimension. Each rank
  /// rounds its partial product to the result's type; the partial products are summed as reduce_scatter does, in f32
  /// and in rank order, and rounded once more. Only rank 0 adds the bias to its partial product, so a sum has the bias
  /// once; for an average every rank adds it.
  ///
  /// The plan allocates from the symmetric heap if symmetra kernels serve the group, else from the device: the
  /// product of a rank; for a pipeline also a workspace of the same size; for unequal parts also one part of the
  /// largest length for each rank. A pipeline needs symmetra kernels.
  ///
  /// Throws the errors of plan_all_gather_matmul; kInvalidArgument also for a dimension that does not divide;
  /// kUnsupported also for Product::relu and reductions other than sum and average.
  MatmulReduceScatter plan_matmul_reduce_scatter(const std::vector<std::size_t>& left, std::size_t dim, const Product& product,
                                                 const FusedOptions& options = FusedOptions()) const;
  /// Plans a GEMM on each rank, and the all-reduce of these partial products. Collective; blocks: the ranks compare
  /// their arguments, find the library and allocate memory, so that later calls do not.
  ///
  /// The left factor is [.., K], row-major. Each rank rounds its partial product to the result's type; the partial
  /// products are combined as all_reduce does. Only rank 0 adds the bias to its partial product, so a sum has the bias
  /// once; for an average every rank adds it.
  ///
  /// The plan allocates from the symmetric heap if symmetra kernels serve the group, else from the device: the
  /// product of a rank; for a pipeline also a workspace and one more part. A pipeline needs symmetra kernels.
  ///
  /// Throws the errors of plan_matmul_reduce_scatter; kUnsupported also for FusedOptions::rows.
  MatmulAllReduce plan_matmul_all_reduce(const std::vector<std::size_t>& left, const Product& product,
                                         const FusedOptions& options = FusedOptions()) const;

 protected:
  explicit Collectives(std::shared_ptr<core::GroupHandle> group) : group_(std::move(group)) {}
  ~Collectives() = default;
  Collectives(Collectives&&) noexcept = default;
  Collectives& operator=(Collectives&&) noexcept = default;

  /// Runs the operation with this name. `parameter` is the root, or the distance between ranks, which may be
  /// negative. `counts`: elements of each rank's part, for parts of unequal lengths.
  void run(const char* operation, const std::optional<ConstOperand>& input, const std::optional<Operand>& output, const Queue& queue,
           Reduction reduction = Reduction::kSum, std::size_t parameter = 0, const std::vector<std::size_t>& counts = {}) const;

  /// Runs messages between pairs, or as a batch of all ranks.
  void run(const std::vector<Message>& messages, bool in_pairs, const Queue& queue) const;

  void norm(const char* operation, const RowNorm& rows, const Queue& queue) const;

  /// Null after a move.
  std::shared_ptr<core::GroupHandle> group_;
};

}  // namespace symmetra
