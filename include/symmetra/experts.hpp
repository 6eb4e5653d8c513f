/// \file
/// Expert parallelism: the rows of tokens are sent to the ranks of their experts (dispatch), and the results come back
/// as sums (combine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symmetra/capture.hpp"
#include "symmetra/config.hpp"
#include "symmetra/memory.hpp"
#include "symmetra/stream.hpp"
#include "symmetra/types.hpp"

namespace symmetra {

class Communicator;
class Placement;

namespace core {
struct Arriving;
struct AskedPlacement;
struct Experts;
struct Returning;
struct Routed;

AskedPlacement placement_of(const symmetra::Placement& placement);
}  // namespace core

/// The wire format of rows from tokens to experts. The numbers are stable.
enum class Wire : std::uint32_t {
  kSame = 0,  ///< unchanged: the caller's rows, bit for bit
  /// Quantised to e4m3, with a scale for each group of 128 elements of a row. With `most` the largest absolute value of
  /// the group, at least 1e-4: scale = most / 448, and a quantised value is the value nearest to x (448 / most), ties
  /// to even.
  kF8 = 1,
  kGivenF8 = 2,  ///< the caller's e4m3 values and f32 scales, one scale for each 128 elements of a row
  kBytes = 3,    ///< ExpertConfig::row_bytes bytes for each row, bit for bit
};

/// The scales of Wire::kF8. The numbers are stable.
enum class Scales : std::uint32_t {
  kF32 = 0,          ///< f32
  kPowersOfTwo = 1,  ///< f32: the smallest power of two for which no quantised value saturates
  kE8M0 = 2,         ///< the power of two of kPowersOfTwo, as the byte of an e8m0 (Dtype::kU8)
};

/// The order of the rows that a rank receives. It depends on the expert ids only. The numbers are stable.
enum class Layout : std::uint32_t {
  /// A row for each token that has an expert on this rank, ordered by source rank and token. The caller returns one row
  /// for each of them: the sum of its experts.
  kByRank = 0,
  /// A row for each pair of a token and an expert on this rank, ordered by local expert, source rank, token, and place
  /// among the token's experts. The first row of an expert is a multiple of ExpertConfig::align.
  kByExpert = 1,
  /// The order of kByExpert, with a capacity of ExpertConfig::padded_rows rows for every local expert.
  kPadded = 2,
  /// A slot for each token of each rank: row source * max_tokens + token. A row without an expert on this rank is not
  /// written; its Received::ids are -1 and its weights 0, so the ids show which rows were received. No place depends on
  /// the routing of other ranks, so this is the fastest layout with packets. Nothing is counted: no counts, offsets or
  /// index. The caller returns one row for each received row: the sum of its experts.
  kBySource = 3,
};

/// The transport of rows. Every method gives equal numbers. The numbers are stable.
enum class Method : std::uint32_t {
  /// Chosen by the library. If symmetra kernels serve the group: kPackets if they support the settings, the heap is as
  /// large as their region, and the rows of ExpertConfig::max_tokens tokens have few enough bytes, else kDirect. If
  /// symmetra kernels do not serve the group: kGather. Experts::explain names the table that chose. A program that
  /// plans, or dispatches a routing again, should name a method.
  kAuto = 0,
  /// A rank writes each row once into the memory of each rank that has an expert of the row's token, and its part of
  /// each token's sum into the memory of the token's rank. By rank and by source, if received rows are symmetric
  /// memory, rows are written directly to their places; if results are symmetric memory, they are read in place. In
  /// these cases all ranks must pass the same symmetric memory. symmetra kernels only.
  kDirect = 1,
  kGather = 2,     ///< an all-gather of all ranks' rows, and an all-to-all of the results
  kBroadcast = 3,  ///< a broadcast of each rank's rows, and an all-to-all of the results
  /// Rows and results are sent in packets that prove their own arrival: no barrier, for few tokens. At most 8192 tokens
  /// of all ranks, and 2048 expert replicas. Routing and rows are sent together, so plan() and Routed::dispatch() are
  /// kUnsupported. A NaN may become another NaN. If four scales of Scales::kE8M0 in one word are all NaN, the last
  /// becomes 2^127. symmetra kernels only.
  kPackets = 4,
};

/// A method, and whether it serves the experts.
struct MethodExplanation {
  Method method;  ///< not kAuto
  bool serves;
  /// Why the method serves or not: the settings, a limit, or the table that chose.
  std::string reason;
};

/// The order of the scales of received rows. A row has a group for each 128 elements. The numbers are stable.
enum class ScaleOrder : std::uint32_t {
  kRows = 0,  ///< [rows, groups]
  /// [groups, rows], where rows is the capacity of the operand; padded: [local experts, groups, rows].
  kColumns = 1,
};

/// The assignment of experts to ranks.
class Placement {
 public:
  /// Consecutive experts together: rank r has experts r E / W to (r + 1) E / W, of E experts on W ranks.
  static Placement blocks() { return Placement(Kind::kBlocks); }
  /// Expert e on rank e modulo the world size.
  static Placement round_robin() { return Placement(Kind::kRoundRobin); }
  /// The experts of every rank, in the order in which the rank numbers them. An expert may have replicas on several
  /// ranks: a token uses the replica on its own rank, else replica (rank + token) modulo the number of replicas.
  static Placement table(std::vector<std::vector<std::size_t>> experts_of_ranks) {
    return Placement(Kind::kTable, std::move(experts_of_ranks));
  }

 private:
  friend core::AskedPlacement core::placement_of(const Placement& placement);
  enum class Kind { kBlocks, kRoundRobin, kTable };
  explicit Placement(Kind kind, std::vector<std::vector<std::size_t>> lists = {}) : kind_(kind), lists_(std::move(lists)) {}

  Kind kind_;
  std::vector<std::vector<std::size_t>> lists_;
};

/// The settings of Experts. They are equal on every rank of the group.
struct ExpertConfig {
  ExpertConfig(std::size_t expert_count, std::size_t experts_of_token, std::size_t row_elems, std::size_t most_tokens)
      : experts(expert_count), top_k(experts_of_token), hidden(row_elems), max_tokens(most_tokens) {}

  /// The number of experts of the model's layer: 1 to 65,534.
  std::size_t experts;
  /// The number of experts of a token: 1 to 64.
  std::size_t top_k;
  /// Elements of a row: 1 to 65,536.
  std::size_t hidden;
  /// Most tokens that a rank dispatches in a call.
  std::size_t max_tokens;
  /// The type of the caller's rows and results: kF32, kF16 or kBF16.
  Dtype dtype = Dtype::kBF16;
  /// The wire format of rows.
  Wire wire = Wire::kSame;
  /// The scales of Wire::kF8.
  Scales scales = Scales::kF32;
  /// Bytes of a row of Wire::kBytes: 1 to 2^20.
  std::size_t row_bytes = 0;
  /// The order of received rows.
  Layout layout = Layout::kByRank;
  /// The first row of an expert in Layout::kByExpert is a multiple of this: 1 to 65,536.
  std::size_t align = 1;
  /// Rows of a local expert in Layout::kPadded, at least 1.
  std::size_t padded_rows = 0;
  /// The transport of rows.
  Method method = Method::kAuto;
  /// The assignment of experts to ranks.
  Placement placement = Placement::blocks();
  /// The determinism of a combine; unset: Config::determinism. kExact: each result is sent, and the sum is in the order
  /// of a token's experts, for any world size and placement. kPerAlgorithm: a rank first sums the results of its own
  /// experts.
  std::optional<Determinism> determinism{};
  /// Most rows that a rank may receive, including the padding of alignment; unset: the worst case. Layout::kPadded has
  /// a limit of its own, and Layout::kBySource has capacity for all rows.
  std::optional<std::size_t> capacity{};
  /// The number of dispatches that may wait for their combine at once, and of combines that may be begun and not
  /// received: 1 to 3. Dispatches take this many slots in turn, so that a dispatch has the same slot on all ranks. At
  /// most in_flight - 1 dispatches may lie between a dispatch and the destruction of its handle.
  std::size_t in_flight = 1;
  /// Most blocks of a kernel; unset: chosen by the library.
  std::optional<std::uint32_t> blocks{};

  /// These settings with the method and the layout of a backend that engines know by name: `naive`,
  /// `allgather_reducescatter`, `mori`, `deepep_high_throughput` (rows by rank), or `deepep_low_latency` (padded, with
  /// capacity for a row of each token of `world_size` ranks: an expert that a token names twice counts twice against
  /// that capacity). Throws kInvalidArgument with the valid names.
  ExpertConfig backend(const std::string& name, std::size_t world_size) const;
};

/// Bytes of the symmetric heap that experts with these settings take on each rank, without the overhead of every
/// symmetric buffer: see Communicator::symmetric. `group` has the settings of the group. For Method::kAuto this is the
/// maximum over the methods that the library may choose on any kind of device. Throws kInvalidArgument for a setting
/// outside its limits.
std::uint64_t expert_bytes(std::size_t world_size, const Config& group, const ExpertConfig& config);

/// The experts of each token of this rank. Must not outlive the operands' sources.
struct Routing {
  explicit Routing(ConstOperand numbers, std::optional<ConstOperand> factors = std::nullopt) : ids(numbers), weights(factors) {}

  /// The experts of each token: [tokens, top_k] of kI32 or kI64. -1 is no expert. The same expert twice in a token is two rows.
  ConstOperand ids;
  /// The weight of each result in its token's sum: [tokens, top_k] of kF32. Without weights each is 1.
  std::optional<ConstOperand> weights;
  /// The number of tokens that take part: one element of kU32 in device memory, which is read in stream order. The
  /// other tokens have no expert, and their rows of a combine's output are not modified.
  std::optional<ConstOperand> tokens{};
};

/// The outputs of a dispatch. An output that is not set is not written. Rows beyond the last received row, and the
/// padding of alignment, are not modified. Experts::capacity() is the number of rows. Must not outlive the operands'
/// sources.
struct Received {
  explicit Received(Operand to) : rows(to) {}

  /// The rows: [rows, hidden] of ExpertConfig::dtype; of kU8 or kF8E4M3 for quantised rows; [rows, row_bytes] of kU8
  /// for Wire::kBytes. By rank or by source with Method::kDirect, symmetric memory is fastest: peers write there, so
  /// all ranks must pass the same buffer.
  Operand rows;
  /// The scales of quantised values: a scale for each 128 elements of each row, of kF32, or kU8 for e8m0.
  std::optional<Operand> scales{};
  /// The number of pairs of a token and an expert that each local expert received: [local experts] of kU32. Not by
  /// source.
  std::optional<Operand> counts{};
  /// The first row of each local expert in the order of experts, and the end of the last expert's rows: [local experts
  /// + 1] of kU32. By rank, offsets into the index. Not by source.
  std::optional<Operand> offsets{};
  /// The local expert of each row: [rows] of kI32. By rank and by source, the local expert of each pair of the row's
  /// token, or -1 for an expert of another rank: [rows, top_k]. By source, rows that were not received are also
  /// written, with -1.
  std::optional<Operand> ids{};
  /// The weight of each row: [rows] of kF32. By rank and by source, of each pair of the row's token, or 0 for an expert
  /// of another rank: [rows, top_k]. By source, rows that were not received are also written, with 0.
  std::optional<Operand> weights{};
  /// Source rank and token of each row: [rows, 2] of kU32.
  std::optional<Operand> sources{};
  /// By rank only: the row number of each pair, in the order of local experts, for a GEMM that gathers its rows: [rows,
  /// top_k] of kU32. `offsets` has the range of each expert.
  std::optional<Operand> index{};
  /// The order of `scales`.
  ScaleOrder order = ScaleOrder::kRows;
};

/// The settings of a combine. Must not outlive the operand's source.
struct CombineOptions {
  /// Whether results are multiplied by the weights of the routing. Equal on all ranks.
  bool weighted = true;
  /// Rows that are added to the sums before they are rounded: [tokens, hidden]. They may be the memory of the output.
  std::optional<ConstOperand> add{};
};

/// The first half of a combine: results are in transit. receive() is the second half. Move-only; usable from any
/// thread.
///
/// Combines are received in the order in which they were begun. A combine that is destroyed is received nevertheless,
/// without output, so that ranks stay in step: on the stream of its begin, or after the combines that were begun
/// before; in a capture at the latest when the capture ends. A combine holds the slot of its dispatch until it is
/// received, even if the Routed is destroyed first. A combine of a Capture may only be received in that capture.
class [[nodiscard]] Returning {
 public:
  Returning(Returning&&) noexcept = default;
  Returning& operator=(Returning&&) noexcept = default;

  /// Sums the results of this rank's tokens into `output`, [tokens, hidden], as Routed::combine does. Enqueues and
  /// returns. All ranks receive their combines, each in the order in which they were begun. `output` may be the memory
  /// that combine_begin() read.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device, that overlap, and for a queue of another
  /// capture than that of the begin; kUnsupported while an earlier combine has not been received, and for
  /// CombineOptions::weighted = false where ranks multiply results by weights before they send them: with
  /// Determinism::kPerAlgorithm, unless rows are by rank or by source; the group's error if the group has failed. After
  /// an error the combine counts as destroyed.
  void receive(Operand output, Queue queue, CombineOptions options = CombineOptions()) &&;

 private:
  friend class Routed;
  explicit Returning(std::shared_ptr<core::Returning> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Returning> core_;
};

/// A dispatch that waits for its combine: it records the source of each row. Move-only; usable from any thread.
///
/// Holds one of ExpertConfig::in_flight slots of its Experts until it is destroyed. It shares ownership of the
/// resources of its Experts, which may be destroyed first. A Routed of a Capture may only be used in that capture; when
/// the capture has ended, destroy it.
class [[nodiscard]] Routed {
 public:
  Routed(Routed&&) noexcept = default;
  Routed& operator=(Routed&&) noexcept = default;

  /// Sends the results of this rank's experts back, and sums those of this rank's tokens into `output`, [tokens, hidden]. Enqueues and
  /// returns. All ranks call it in the same order. May be called more than once.
  ///
  /// `rows` has a row of ExpertConfig::dtype at each place of a received row. A token's sum is computed in f32, from
  /// rounded products: w y of each of its experts, where w is 1 without weights. A rank adds the results of its own
  /// experts in the order of the token's ids and rounds the sum to the type; the token's rank adds the sums of the
  /// ranks in rank order and rounds. With Determinism::kExact the token's rank adds all results in the order of the
  /// token's ids and rounds once, so that the bits depend neither on the world size nor on the placement. By rank and
  /// by source, a row is the caller's sum for its token, and is used unchanged. A sum without results is 0. In these
  /// layouts with Method::kDirect, symmetric `rows` are fastest: peers read there, so all ranks must pass the same
  /// buffer.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device, that overlap, and for a queue of another capture than that of
  /// the dispatch; the group's error if the group has failed.
  void combine(ConstOperand rows, Operand output, Queue queue, CombineOptions options = CombineOptions()) const;
  /// Sends the results of this rank's experts back, without waiting for peers: the first half of combine().
  /// Returning::receive is the second half. Enqueues and returns. All ranks begin their calls in the same order. At
  /// most ExpertConfig::in_flight combines may be begun and not received. `rows` may be overwritten after the call, in
  /// the order of the queue.
  ///
  /// Throws the errors of combine(), except those of the output; kUnsupported for another method than kPackets, and if
  /// in_flight combines are begun and not received.
  Returning combine_begin(ConstOperand rows, Queue queue) const;
  /// Sends other rows with the same routing, as a backward pass does. `scales`: those of Wire::kGivenF8. Enqueues and
  /// returns. All ranks call it in the same order. Throws the errors of Experts::dispatch, except those of the routing.
  void dispatch(ConstOperand rows, const Received& into, Queue queue, std::optional<ConstOperand> scales = std::nullopt) const;
  /// The number of pairs of a token and an expert that each expert of this rank received. Blocks until the device has
  /// counted, with a deadline. Afterwards operands need capacity for the received rows only. Throws kUnsupported for
  /// the routing of a capture, which counts again in every launch, and for Layout::kBySource, which does not count; the
  /// group's error if the group has failed.
  std::vector<std::size_t> counts() const;

 private:
  friend class Arriving;
  friend class Experts;
  explicit Routed(std::shared_ptr<core::Routed> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Routed> core_;
};

/// The first half of a dispatch: rows are in transit. receive() is the second half. Move-only; usable from any thread.
///
/// Dispatches are received in the order in which they were begun. A dispatch that is destroyed is received
/// nevertheless, without outputs, so that ranks stay in step: on the stream of its begin, or after the dispatches that
/// were begun before; in a capture at the latest when the capture ends. Until then the dispatch holds one of
/// ExpertConfig::in_flight slots. A dispatch of a Capture may only be received in that capture.
class [[nodiscard]] Arriving {
 public:
  Arriving(Arriving&&) noexcept = default;
  Arriving& operator=(Arriving&&) noexcept = default;

  /// Receives the rows of the local experts. Enqueues and returns. All ranks receive their dispatches, each in the
  /// order in which they were begun. `into` may be the memory that dispatch_begin() read.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device than the settings require, that overlap,
  /// and for a queue of another capture than that of the begin; kUnsupported while an earlier dispatch has not been
  /// received; the group's error if the group has failed. After an error the dispatch counts as destroyed.
  Routed receive(const Received& into, Queue queue) &&;

 private:
  friend class Experts;
  explicit Arriving(std::shared_ptr<core::Arriving> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Arriving> core_;
};

struct Survivors;

/// The experts of a layer, distributed over the ranks of a group. Made by Collectives::experts. Move-only. Any thread
/// may make calls, if their order is equal on all ranks.
///
/// Every rank makes the calls in the same order. Calls enqueue and return. A call on another stream waits for the
/// previous call. Ranks may have different numbers of tokens, including zero. The rows that a rank receives and their
/// order depend only on the expert ids of all ranks; so do the bits of the sums. No device memory is allocated after
/// opening. A call can be captured if the backend of its collectives supports captures. A replay reads ids, weights and
/// the count of tokens again. The launch of a graph throws kUnsupported while the handle of an eager dispatch holds the
/// graph's slot.
///
/// May be destroyed before its handles and graphs, which share ownership of its resources. Destroying the last of them
/// waits for the device.
class Experts {
 public:
  Experts(Experts&&) noexcept = default;
  Experts& operator=(Experts&&) noexcept = default;

  /// Sends the rows of this rank's tokens to their experts, and receives the rows of the local experts. Enqueues and
  /// returns. `rows` is [tokens, hidden], or with Wire::kBytes the bytes of one row for each token. With
  /// Wire::kGivenF8, `rows` has quantised values, of kU8 or kF8E4M3, and `scales` an f32 scale for each 128 elements:
  /// [tokens, groups].
  ///
  /// Throws kInvalidArgument for operands of another length, type or device than the settings require, and for operands
  /// that overlap; kUnsupported if the next slot is held, or if the call is captured and the backend does not support
  /// captures; the group's error if the group has failed. Errors that only the device detects end the group on every
  /// rank, as a timeout does, and no row is written: kRouting for an invalid expert id, kCapacity for more rows than a
  /// rank's capacity and for a count of tokens above that of the ids. A later call, or Communicator::synchronize,
  /// throws these.
  Routed dispatch(const Routing& routing, ConstOperand rows, const Received& into, Queue queue,
                  std::optional<ConstOperand> scales = std::nullopt) const;
  /// Sends the rows of this rank's tokens to their experts, without waiting for peers: the first half of dispatch().
  /// Arriving::receive is the second half. Enqueues and returns. All ranks begin their calls in the same order. The
  /// operands may be overwritten after the call, in the order of the queue. `scales`: those of Wire::kGivenF8.
  ///
  /// Throws the errors of dispatch(), except those of received rows; kUnsupported for another method than kPackets.
  Arriving dispatch_begin(const Routing& routing, ConstOperand rows, Queue queue, std::optional<ConstOperand> scales = std::nullopt) const;
  /// The routing of a dispatch without its rows: Routed::counts then returns the number of rows to be received, and
  /// Routed::dispatch sends them. Enqueues and returns. Throws the errors of dispatch; kUnsupported for
  /// Method::kPackets, where routing and rows are sent together, and for Layout::kBySource, which does not count.
  Routed plan(const Routing& routing, Queue queue) const;

  /// Moves experts to other ranks, from the next call on, including in graphs that were captured before. The number of
  /// experts of each rank does not change. All ranks pass the same placement. Collective; blocks until the work of
  /// `stream` is done. Throws kMismatch on every rank if placements differ; kInvalidArgument for a placement that omits
  /// an expert or changes the number of experts of a rank; kUnsupported while a dispatch holds a slot, with kPeer on
  /// the other ranks. After each of these errors, the placement is unchanged on all ranks.
  void place(const Placement& placement, const Stream& stream) const;

  /// Opens the experts again on the surviving ranks when the ranks `lost` are gone, over a group and memory of their
  /// own. The surviving ranks call it, with equal `lost`; it blocks until all of them have called it, up to
  /// Deadlines::open. A rank that has died, or has destroyed its experts, before all have met is lost as well, even if
  /// `lost` does not name it: Survivors::lost has all of them. These experts may have failed, as they do when a rank
  /// dies, or work. The caller keeps them until then. Ranks keep their order, and are renumbered from 0. Each keeps its
  /// experts, in their order. Experts without a surviving replica are assigned in ascending order: each is appended to
  /// the rank with the fewest experts, the lowest of several. local_experts() has the experts whose weights to load.
  /// All other settings stay. communicator() is the communicator of the new group, for its other operations and to
  /// close it. Both groups hold memory until these experts, their communicator and their graphs are destroyed. Throws
  /// kInvalidArgument for a rank outside the group, and for the calling rank; kUnsupported for a group of several
  /// hosts; kTimeout if a surviving rank does not call, for example because it passes another `lost`; and the errors of
  /// Communicator::open and Collectives::experts. Errors have the rank numbers of these experts' group.
  Survivors without(const std::vector<std::size_t>& lost) const;
  /// The communicator of the ranks of these experts on this host: another handle of the communicator that opened them,
  /// or of the group that without() opened, which its close() closes.
  Communicator communicator() const;
  /// Waits until the device has done all work on `stream`. If this succeeds and the last call of these experts is on
  /// `stream`, the dispatches without a handle have ended: see Survivors::ended. Throws the group's error if the group
  /// has failed, and a GPU's errors; kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;

  /// The experts of this rank, in local order.
  std::vector<std::size_t> local_experts() const;
  /// The number of rows for which an operand of received rows needs capacity.
  std::size_t capacity() const;
  /// Every method, whether it serves these experts, and why. Exactly one serves. Equal on every rank.
  std::vector<MethodExplanation> explain() const;
  /// The method that serves; not kAuto.
  Method method() const;

 private:
  friend class Collectives;
  explicit Experts(std::shared_ptr<core::Experts> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Experts> core_;
};

/// The result of Experts::without.
struct [[nodiscard]] Survivors {
  /// The experts of the surviving ranks.
  Experts experts;
  /// All lost ranks, in ascending order, by their numbers in the previous group.
  std::vector<std::size_t> lost;
  /// The number of dispatches, since the previous experts were opened, that have ended on every surviving rank: the
  /// minimum over the ranks. The ranks continue after that dispatch, even if some rank has made further calls. A rank
  /// knows that a dispatch has ended when Experts::synchronize has succeeded after the handle of the dispatch was
  /// destroyed. A launch of a graph counts each dispatch of the graph, a plan counts as its dispatch, and a natively
  /// captured dispatch counts once.
  std::uint64_t ended = 0;
};

}  // namespace symmetra
