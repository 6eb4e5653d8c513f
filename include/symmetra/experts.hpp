/// \file
/// Expert parallelism: the rows of tokens go to the ranks of their experts (dispatch), and the results come back as sums (combine).
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

/// How rows travel from tokens to experts. The numbers are stable.
enum class Wire : std::uint32_t {
  kSame = 0,  ///< as the caller's rows are, bit for bit
  /// As e4m3 codes, with a scale for each 128 elements of a row. With `most` the largest size of such a group, at least 1e-4:
  /// scale = most / 448, and a code is the nearest to x (448 / most), to even codes where two are as near.
  kF8 = 1,
  kGivenF8 = 2,  ///< as the e4m3 codes and f32 scales, one for each 128 elements of a row, that the caller gives
  kBytes = 3,    ///< as ExpertConfig::row_bytes bytes a row, bit for bit
};

/// The scales of Wire::kF8. The numbers are stable.
enum class Scales : std::uint32_t {
  kF32 = 0,          ///< f32
  kPowersOfTwo = 1,  ///< f32: the least power of two under which no code saturates
  kE8M0 = 2,         ///< the least power of two under which no code saturates, as the byte of an e8m0 (Dtype::kU8)
};

/// The order of the rows that a rank receives: a function of the ids alone. The numbers are stable.
enum class Layout : std::uint32_t {
  /// A row for each token that has an expert on this rank, by source rank and token. The caller gives back one row for each, the sum of its
  /// experts.
  kByRank = 0,
  /// A row for each pair of a token and an expert on this rank, by local expert, source rank, token, and place among the token's experts.
  /// The rows of an expert begin at a multiple of ExpertConfig::align.
  kByExpert = 1,
  /// The order of kByExpert, with room for ExpertConfig::padded_rows rows of every local expert.
  kPadded = 2,
  /// Room for a row of each token of each rank: row source * max_tokens + token. A row without an expert on this rank is not written; its
  /// Received::ids are -1 and its weights 0, so ids are what says which rows came. No place depends on what other ranks send, so by packets
  /// this is the fastest layout. Nothing is counted: no counts, offsets or index. The caller gives back one row for each that came, the sum
  /// of its experts.
  kBySource = 3,
};

/// How ranks exchange rows. Every way gives equal numbers. The numbers are stable.
enum class Method : std::uint32_t {
  /// The library's choice. Where own kernels serve the group: kPackets if they can serve the settings, the heap is as large as their
  /// region,
  /// and the rows of ExpertConfig::max_tokens tokens are few enough bytes, else kDirect. Where own kernels do not serve the group: kGather.
  /// Experts::explain says which table chose. A program that plans, or dispatches a routing again, names a method.
  kAuto = 0,
  /// A rank writes each row into the memory of each rank that has an expert of the row's token, once, and its part of each token's sum into
  /// the memory of the token's rank. By rank and by source, where received rows are symmetric memory, rows go straight to their places;
  /// where results are, they are read where they are. Then all ranks give the same symmetric memory. Own kernels alone.
  kDirect = 1,
  kGather = 2,     ///< an all-gather of all ranks' rows, and an all-to-all of the results
  kBroadcast = 3,  ///< a broadcast of each rank's rows, and an all-to-all of the results
  /// Rows and results go in packets that prove their own arrival: no barrier, for few tokens. At most 8192 tokens of all ranks, and 2048
  /// copies of experts. Routing and rows travel together, so plan() and Routed::dispatch() are kUnsupported. A NaN may become another NaN.
  /// Of four scales of Scales::kE8M0 that are NaN and lie in one word, the last becomes 2^127. Own kernels alone.
  kPackets = 4,
};

/// A method, and whether it serves experts.
struct MethodExplanation {
  Method method;  ///< not kAuto
  bool serves;
  /// Why the method serves or not: the settings, a limit, or the table that chose.
  std::string reason;
};

/// The order of scales of received rows, of which a row has a group for each 128 elements. The numbers are stable.
enum class ScaleOrder : std::uint32_t {
  kRows = 0,  ///< [rows, groups]
  /// [groups, rows], as the operand has room for rows; of padded rows [local experts, groups, rows].
  kColumns = 1,
};

/// Which rank has which experts.
class Placement {
 public:
  /// Neighbouring experts together: rank r has experts r E / W to (r + 1) E / W, of E experts on W ranks.
  static Placement blocks() { return Placement(Kind::kBlocks); }
  /// Expert e on rank e modulo the world size.
  static Placement round_robin() { return Placement(Kind::kRoundRobin); }
  /// The experts of every rank, in the order in which the rank numbers them. An expert may be on several ranks: a token takes the copy on
  /// its own rank, else copy (rank + token) modulo the number of copies.
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

/// The settings of Experts. Every rank of the group has the same.
struct ExpertConfig {
  ExpertConfig(std::size_t expert_count, std::size_t experts_of_token, std::size_t row_elems, std::size_t most_tokens)
      : experts(expert_count), top_k(experts_of_token), hidden(row_elems), max_tokens(most_tokens) {}

  /// How many experts the model's layer has: 1 to 65,534.
  std::size_t experts;
  /// How many experts a token goes to: 1 to 64.
  std::size_t top_k;
  /// Elements of a row: 1 to 65,536.
  std::size_t hidden;
  /// Most tokens that a rank dispatches in a call.
  std::size_t max_tokens;
  /// The type of the caller's rows and results: kF32, kF16 or kBF16.
  Dtype dtype = Dtype::kBF16;
  /// How rows travel to experts.
  Wire wire = Wire::kSame;
  /// The scales of Wire::kF8.
  Scales scales = Scales::kF32;
  /// Bytes of a row of Wire::kBytes: 1 to 2^20.
  std::size_t row_bytes = 0;
  /// The order of received rows.
  Layout layout = Layout::kByRank;
  /// Where the rows of an expert begin in Layout::kByExpert: at multiples of this, 1 to 65,536.
  std::size_t align = 1;
  /// Rows of a local expert in Layout::kPadded, at least 1.
  std::size_t padded_rows = 0;
  /// How ranks exchange rows.
  Method method = Method::kAuto;
  /// Which rank has which experts.
  Placement placement = Placement::blocks();
  /// What the bits of a combine depend on; without one, as Config::determinism says. kExact: each result travels, and the sum is in the
  /// order of a token's experts, whatever the world size and the placement. kPerAlgorithm: a rank sums the results of its own experts
  /// first.
  std::optional<Determinism> determinism{};
  /// Most rows that a rank may receive, with the rows that alignment leaves free; without a number, as many as can come at worst.
  /// Layout::kPadded has a limit of its own, and Layout::kBySource has room for all.
  std::optional<std::size_t> capacity{};
  /// How many dispatches may wait for their combine at once, and how many combines may be begun and not received: 1 to 3. Dispatches take
  /// so many slots in turn, so that a dispatch has the same slot on all ranks. At most in_flight - 1 dispatches lie between a dispatch and
  /// the destruction of its handle.
  std::size_t in_flight = 1;
  /// Most blocks of a kernel; without a number, as many as serve best.
  std::optional<std::uint32_t> blocks{};

  /// These settings with the method and the layout of a backend that engines know by name: `naive`, `allgather_reducescatter`, `mori`,
  /// `deepep_high_throughput` (rows by rank), or `deepep_low_latency` (padded, with room for a row of each token of `world_size` ranks: an
  /// expert that a token names twice counts twice against that room). Throws kInvalidArgument with the valid names.
  ExpertConfig backend(const std::string& name, std::size_t world_size) const;
};

/// Bytes of the symmetric heap that experts with these settings take on each rank, but for what every symmetric buffer has beside its
/// elements: see Communicator::symmetric. `group` has the settings of the group. For Method::kAuto the bytes of the method that takes most
/// among those that the library may choose, on any kind of device. Throws kInvalidArgument for a setting outside its limits.
std::uint64_t expert_bytes(std::size_t world_size, const Config& group, const ExpertConfig& config);

/// Which experts each token of this rank goes to. Must not outlive the operands' sources.
struct Routing {
  explicit Routing(ConstOperand numbers, std::optional<ConstOperand> factors = std::nullopt) : ids(numbers), weights(factors) {}

  /// The experts of each token: [tokens, top_k] of kI32 or kI64. -1 is no expert. The same expert twice in a token is two rows.
  ConstOperand ids;
  /// The weight of each result in its token's sum: [tokens, top_k] of kF32. Without weights each is 1.
  std::optional<ConstOperand> weights;
  /// How many of the tokens take part: one element of kU32 in device memory, which is read when the queue gets there. The other tokens go
  /// to no expert, and their rows of a combine's output stay as they are.
  std::optional<ConstOperand> tokens{};
};

/// Where received rows go, and what else of a dispatch is written. What is not named is not written; rows behind the last that came, and
/// rows that alignment leaves free, stay as they are. Experts::capacity() is the number of rows. Must not outlive the operands' sources.
struct Received {
  explicit Received(Operand to) : rows(to) {}

  /// The rows: [rows, hidden] of ExpertConfig::dtype; of kU8 or kF8E4M3 where codes travel; [rows, row_bytes] of kU8 where bytes travel.
  /// By rank or by source and Method::kDirect, symmetric memory is fastest: peers write there, so all ranks give the same.
  Operand rows;
  /// The scales of codes: a scale for each 128 elements of each row, of kF32, or kU8 where they are e8m0.
  std::optional<Operand> scales{};
  /// How many pairs of a token and an expert each local expert received: [local experts] of kU32. Not by source.
  std::optional<Operand> counts{};
  /// The first row of each local expert in the order of experts, and the row behind the last: [local experts + 1] of kU32. By rank, into
  /// the index. Not by source.
  std::optional<Operand> offsets{};
  /// The local expert of each row: [rows] of kI32. By rank and by source, the local expert of each pair of the row's token, or -1 for an
  /// expert of another rank: [rows, top_k]. By source, also of rows that did not come, where all are -1.
  std::optional<Operand> ids{};
  /// The weight of each row: [rows] of kF32. By rank and by source, of each pair of the row's token, or 0 for an expert of another rank:
  /// [rows, top_k]. By source, also of rows that did not come, where all are 0.
  std::optional<Operand> weights{};
  /// Source rank and token of each row: [rows, 2] of kU32.
  std::optional<Operand> sources{};
  /// By rank alone: the number of the row of each pair, in the order of local experts, for a matrix product that gathers: [rows, top_k] of
  /// kU32, of which `offsets` says what belongs to which expert.
  std::optional<Operand> index{};
  /// The order of `scales`.
  ScaleOrder order = ScaleOrder::kRows;
};

/// The settings of a combine. Must not outlive the operand's source.
struct CombineOptions {
  /// Whether results are multiplied by the weights of the routing. All ranks say the same.
  bool weighted = true;
  /// Rows that are added to the sums before they are rounded: [tokens, hidden]. They may be the memory of the output.
  std::optional<ConstOperand> add{};
};

/// The first half of a combine: results are on their way. receive() is the second half. Move-only; usable from any thread.
///
/// Combines are received in the order in which they were begun. A combine that is destroyed is received all the same, into nothing, so
/// that ranks stay in step: on the stream of its begin, or behind the combines that were begun before; in a capture at the latest when the
/// capture ends. A combine holds the slot of its dispatch until it is received, also where the Routed goes first. One that was made on a
/// Capture serves that capture alone.
class [[nodiscard]] Returning {
 public:
  Returning(Returning&&) noexcept = default;
  Returning& operator=(Returning&&) noexcept = default;

  /// Sums the results of this rank's tokens into `output`, [tokens, hidden], as Routed::combine does. Enqueues and returns. All ranks
  /// receive their combines, each in the order of the begins. `output` may be the memory of what the begin read.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device, that overlap, and for a queue of another capture than that of
  /// the begin; kUnsupported while a combine that was begun before is not received, and for CombineOptions::weighted = false where ranks
  /// weigh results before they send them: with Determinism::kPerAlgorithm, unless rows are by rank or by source; the group's error if the
  /// group has failed. After an error the combine counts as destroyed.
  void receive(Operand output, Queue queue, CombineOptions options = CombineOptions()) &&;

 private:
  friend class Routed;
  explicit Returning(std::shared_ptr<core::Returning> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Returning> core_;
};

/// A dispatch that waits for its combine: which rows came from where. Move-only; usable from any thread.
///
/// Holds one of ExpertConfig::in_flight slots of its Experts until it is destroyed. It shares ownership of what it needs of its Experts,
/// which may be destroyed before. One that was made on a Capture serves that capture alone; when the capture has ended, destroy it.
class [[nodiscard]] Routed {
 public:
  Routed(Routed&&) noexcept = default;
  Routed& operator=(Routed&&) noexcept = default;

  /// Sends the results of this rank's experts back, and sums those of this rank's tokens into `output`, [tokens, hidden]. Enqueues and
  /// returns. All ranks call it in the same order. May be called more than once.
  ///
  /// `rows` has a row of ExpertConfig::dtype where the dispatch put one. A token's sum is made in f32, of products that are rounded: w y of
  /// each of its experts, with a weight of 1 where the routing has none. A rank adds the results of its own experts in the order of the
  /// token's ids and rounds the sum to the type; the token's rank adds the sums of the ranks in their order and rounds. With
  /// Determinism::kExact the token's rank adds all results in the order of the token's ids and rounds once, so that the bits depend neither
  /// on the world size nor on the placement. By rank and by source, a row is the caller's sum for its token, and counts as it is. The sum
  /// of no results is 0. With such rows and Method::kDirect, symmetric `rows` are fastest: peers read there, so all ranks give the same.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device, that overlap, and for a queue of another capture than that of
  /// the dispatch; the group's error if the group has failed.
  void combine(ConstOperand rows, Operand output, Queue queue, CombineOptions options = CombineOptions()) const;
  /// Sends the results of this rank's experts back, and waits for nobody: the first half of combine(). Returning::receive is the second
  /// half. Enqueues and returns. All ranks begin their calls in the same order. At most ExpertConfig::in_flight combines may be begun and
  /// not received. `rows` may be overwritten behind the call, in the order of the queue.
  ///
  /// Throws what combine() throws, but for the output; kUnsupported for another method than kPackets, and where as many combines as may be
  /// are begun and not received.
  Returning combine_begin(ConstOperand rows, Queue queue) const;
  /// Sends other rows of the same tokens the same way, as a backward pass does. `scales`: those of Wire::kGivenF8. Enqueues and returns.
  /// All ranks call it in the same order. Throws what Experts::dispatch throws, but for the routing.
  void dispatch(ConstOperand rows, const Received& into, Queue queue, std::optional<ConstOperand> scales = std::nullopt) const;
  /// How many pairs of a token and an expert each expert of this rank received. Blocks until the device has counted, which has a deadline.
  /// From then on operands need room for the rows that came, and no more. Throws kUnsupported for the routing of a capture, which counts
  /// anew in every launch, and for Layout::kBySource, where nothing is counted; the group's error if the group has failed.
  std::vector<std::size_t> counts() const;

 private:
  friend class Arriving;
  friend class Experts;
  explicit Routed(std::shared_ptr<core::Routed> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Routed> core_;
};

/// The first half of a dispatch: rows are on their way. receive() is the second half. Move-only; usable from any thread.
///
/// Dispatches are received in the order in which they were begun. A dispatch that is destroyed is received all the same, into nothing, so
/// that ranks stay in step: on the stream of its begin, or behind the dispatches that were begun before; in a capture at the latest when
/// the capture ends. Until then the dispatch holds one of ExpertConfig::in_flight slots. One that was made on a Capture serves that capture
/// alone.
class [[nodiscard]] Arriving {
 public:
  Arriving(Arriving&&) noexcept = default;
  Arriving& operator=(Arriving&&) noexcept = default;

  /// Receives the rows of the experts here. Enqueues and returns. All ranks receive their dispatches, each in the order of the begins.
  /// `into` may be the memory of what the begin read.
  ///
  /// Throws kInvalidArgument for operands of another length, type or device than the settings ask for, that overlap, and for a queue of
  /// another capture than that of the begin; kUnsupported while a dispatch that was begun before is not received; the group's error if the
  /// group has failed. After an error the dispatch counts as destroyed.
  Routed receive(const Received& into, Queue queue) &&;

 private:
  friend class Experts;
  explicit Arriving(std::shared_ptr<core::Arriving> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Arriving> core_;
};

struct Survivors;

/// The experts of a layer, spread over the ranks of a group. Made by Collectives::experts. Move-only. Any thread may use it, in an order
/// that is equal on all ranks, whatever threads make the calls.
///
/// Every rank makes the calls in the same order. Calls enqueue and return. A call on another stream waits for the call before. Ranks may
/// have different numbers of tokens, also none. Which rows a rank receives, and in which order, is a function of the ids of all ranks
/// alone; so are the bits of the sums. No device memory is allocated after opening. A call can be captured where the backend of its
/// collectives can be, and a replay reads ids, weights and the count of tokens anew. A graph whose slot the handle of an eager dispatch
/// holds throws kUnsupported at its launch.
///
/// May be destroyed before its handles and graphs, which share ownership of what they need. Destroying the last of them waits for the
/// device.
class Experts {
 public:
  Experts(Experts&&) noexcept = default;
  Experts& operator=(Experts&&) noexcept = default;

  /// Sends the rows of this rank's tokens to their experts, and receives the rows of the experts here. Enqueues and returns. `rows` is
  /// [tokens, hidden], or with Wire::kBytes the bytes of as many rows. With Wire::kGivenF8, `rows` has codes, of kU8 or kF8E4M3, and
  /// `scales` a scale in f32 for each 128 elements: [tokens, groups].
  ///
  /// Throws kInvalidArgument for operands of another length, type or device than the settings ask for, and for operands that overlap;
  /// kUnsupported if the next slot is held, or where the call is captured and the backend cannot be; the group's error if the group has
  /// failed. What only the device sees ends the group on every rank, as a timeout does, and no row is written: kRouting for an expert that
  /// there is not, kCapacity for more rows than a rank has room for and for a count of tokens above that of the ids. A later call, or
  /// Communicator::synchronize, throws these.
  Routed dispatch(const Routing& routing, ConstOperand rows, const Received& into, Queue queue,
                  std::optional<ConstOperand> scales = std::nullopt) const;
  /// Sends the rows of this rank's tokens to their experts, and waits for nobody: the first half of dispatch(). Arriving::receive is the
  /// second half. Enqueues and returns. All ranks begin their calls in the same order. What the call reads may be overwritten behind the
  /// call, in the order of the queue. `scales`: those of Wire::kGivenF8.
  ///
  /// Throws what dispatch() throws, but for received rows; kUnsupported for another method than kPackets.
  Arriving dispatch_begin(const Routing& routing, ConstOperand rows, Queue queue, std::optional<ConstOperand> scales = std::nullopt) const;
  /// The routing of a dispatch without its rows: Routed::counts then says how many rows will come, and Routed::dispatch sends them.
  /// Enqueues and returns. Throws what dispatch throws; kUnsupported for Method::kPackets, where routing and rows travel together, and for
  /// Layout::kBySource, where nothing is counted.
  Routed plan(const Routing& routing, Queue queue) const;

  /// Moves experts to other ranks, from the next call on, also in graphs that were captured before. Every rank keeps as many experts as
  /// before. Ranks give the same placement. Collective; blocks until the work of `stream` is done. Throws kMismatch on every rank if
  /// placements differ; kInvalidArgument for a placement that leaves an expert out, or with another number of experts on a rank;
  /// kUnsupported while a dispatch holds a slot, with kPeer on the other ranks. After each of these, experts are on all ranks where they
  /// were before.
  void place(const Placement& placement, const Stream& stream) const;

  /// Opens the experts again on the ranks that are left when the ranks `lost` are gone, over a group and memory of their own. The ranks
  /// that are left call it, with equal `lost`; blocks until all of them have called it, up to Deadlines::open. A rank that has died, or has
  /// destroyed its experts, before all have met is lost as well, whether `lost` names it or not: Survivors::lost has all. These experts may
  /// have failed, as they do when a rank dies, or work. The caller keeps them until then. Ranks keep their order, and are numbered anew
  /// from 0. Each keeps its experts, in their order. Experts that no rank has any more go, in ascending order, behind those of the rank
  /// that has the fewest, the lowest of several: local_experts says whose weights to load. All other settings stay. communicator() is the
  /// communicator of the new group, for its other operations and to close it. Both groups have memory until these experts, their
  /// communicator and their graphs are destroyed. Throws kInvalidArgument for a rank outside the group, and for the calling rank;
  /// kUnsupported for a group of several hosts; kTimeout if a rank that lives does not call, also because it takes other ranks for lost;
  /// what Communicator::open and Collectives::experts throw. Errors have the rank numbers of these experts' group.
  Survivors without(const std::vector<std::size_t>& lost) const;
  /// The communicator of the ranks of these experts on this host: another handle of the one that opened them, or of the group that
  /// without() opened, which its close() closes.
  Communicator communicator() const;
  /// Waits until the device has done all work on `stream`. Where this succeeds and the last call of these experts is on `stream`, the
  /// dispatches that have no handle any more have ended: see Survivors::ended. Throws the group's error if the group has failed, and a
  /// GPU's errors; kInvalidArgument for a stream of another device.
  void synchronize(const Stream& stream) const;

  /// The experts of this rank, in local order.
  std::vector<std::size_t> local_experts() const;
  /// How many rows an operand for received rows needs room for.
  std::size_t capacity() const;
  /// Every method, and why it serves or not: one does. Equal on every rank.
  std::vector<MethodExplanation> explain() const;
  /// The method that serves; not kAuto.
  Method method() const;

 private:
  friend class Collectives;
  explicit Experts(std::shared_ptr<core::Experts> core) : core_(std::move(core)) {}

  std::shared_ptr<core::Experts> core_;
};

/// What Experts::without opens.
struct [[nodiscard]] Survivors {
  /// The experts of the ranks that are left.
  Experts experts;
  /// All ranks that are lost, in ascending order, by the numbers of the group before.
  std::vector<std::size_t> lost;
  /// How many dispatches, counted since the experts before were opened, have ended on every rank that is left: the least of what each
  /// knows. The ranks go on behind that dispatch, whatever each has done since. A rank knows that a dispatch has ended when
  /// Experts::synchronize has succeeded after the handle of the dispatch was destroyed. A launch of a graph counts each dispatch of the
  /// graph, a plan counts as its dispatch, and what the owner of a stream captured natively counts once.
  std::uint64_t ended = 0;
};

}  // namespace symmetra
