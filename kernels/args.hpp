// Argument blocks of the kernels: plain data, defined here for both languages. bindgen generates src/kernel/args.rs
// from this file. Both sides assert sizes; Rust also asserts offsets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/experts.hpp"
#include "kernels/heap_probe.hpp"
#include "kernels/multicast.hpp"
#include "kernels/pairs.hpp"
#include "kernels/scale.hpp"
#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

/// Most blocks a launch may have; every per-block table has this many entries.
constexpr uint32_t kMaxBlocks = 256;

/// Element types. The numbers cross the language boundary.
constexpr uint32_t kF32 = 0;
constexpr uint32_t kF64 = 1;
constexpr uint32_t kF16 = 2;
constexpr uint32_t kBF16 = 3;
constexpr uint32_t kI32 = 4;
constexpr uint32_t kI64 = 5;
constexpr uint32_t kI8 = 6;
constexpr uint32_t kU8 = 7;
constexpr uint32_t kU32 = 8;
constexpr uint32_t kU64 = 9;
constexpr uint32_t kF8E4M3 = 10;
constexpr uint32_t kF8E5M2 = 11;
constexpr uint32_t kElementTypes = 12;  ///< the number of element types

/// Reductions. The numbers cross the language boundary.
constexpr uint32_t kSum = 0;
constexpr uint32_t kProduct = 1;
constexpr uint32_t kMin = 2;
constexpr uint32_t kMax = 3;
constexpr uint32_t kAverage = 4;

/// All-reduce algorithms.
constexpr uint32_t kOneShotLL = 0;            ///< one hop; 8 data bytes and two epochs a packet
constexpr uint32_t kOneShotSentinel = 1;      ///< one hop; 16 data bytes a packet, floating types
constexpr uint32_t kTwoShotLL = 2;            ///< reduce-scatter and all-gather, both pushed, LL packets
constexpr uint32_t kTwoShotSentinel = 3;      ///< reduce-scatter and all-gather, both pushed, sentinel packets, floating types
constexpr uint32_t kTwoShotZeroCopy = 4;      ///< zero-copy: reads and reduces inputs, writes outputs
constexpr uint32_t kRing = 5;                 ///< round a ring, through queues or into the outputs
constexpr uint32_t kRecursiveDoubling = 6;    ///< exchanges with one partner a step; LL packets
constexpr uint32_t kAllReduceAlgorithms = 7;  ///< the number of algorithms for memory of all kinds
constexpr uint32_t kMulticastOneShot = 7;     ///< every rank sums all inputs by multicast
constexpr uint32_t kMulticastTwoShot = 8;     ///< every rank sums a share by multicast and stores it by multicast

/// Codecs: how a quantised all-reduce sends values. The numbers cross the language boundary.
constexpr uint32_t kCodecNone = 0;  ///< unchanged
constexpr uint32_t kCodecFp8 = 1;   ///< e4m3, 8 bits
constexpr uint32_t kCodecInt8 = 2;
constexpr uint32_t kCodecInt6 = 3;
constexpr uint32_t kCodecInt4 = 4;
constexpr uint32_t kCodecs = 5;  ///< the number of codecs
/// Elements of a unit of a quantised message, which is whole packets, and of a group in it, which has one scale.
constexpr uint32_t kUnitElems = 512;
constexpr uint32_t kGroupElems = 32;

/// Most blocks of a ring: its channels. Fewer than the multiprocessors of an H100, so all run at once. Channels do not
/// wait for each other, so on a smaller device the rest run later.
constexpr uint32_t kRingChannels = 128;
/// Slots of a channel's queue. With two, a rank fills one while the next rank empties the other.
constexpr uint32_t kRingSlots = 2;
/// The region of a ring: flags of the entry barrier, two counters per channel, queues.
constexpr uint32_t kRingCountsOffset = kMaxBlocks * kMaxWorld * 4;
constexpr uint32_t kRingCountBytes = 64;
constexpr uint32_t kRingQueuesOffset = kRingCountsOffset + 2 * kRingChannels * kRingCountBytes;

/// Per-block protocol state in device memory of this rank, kMaxBlocks entries for each region. All entries advance
/// together, one step in each call, for any grid: block b of a grid of g blocks reads entry b and writes entries b, b +
/// g, b + 2g...
struct BlockState {
  uint32_t epoch;     ///< calls made in this region, modulo kEpochModulus
  uint32_t previous;  ///< sentinels: packets per source of the previous call; ring: counters of its channels
};
/// Divisible by 2 and 3, so that buffers rotate evenly across the wrap.
constexpr uint32_t kEpochModulus = 0xFFFFFFFCu;

/// One all-reduce. Fields that a kernel needs first come first: constant memory is cold when a kernel starts, and one
/// line of it (64 bytes, of which a launch takes 16) costs a few percent of a small message. The first line ends with
/// wait.progress. The second line contains the other fields that packets need, for up to four ranks.
struct AllReduceArgs {
  const void* input;
  void* output;
  uint64_t count;       ///< elements
  BlockState* state;    ///< own, of this region
  uint32_t lanes_log2;  ///< packets of one source that a block handles at once
  uint32_t rank;
  Wait wait;
  uint64_t slot_packets;  ///< capacity for one source in one buffer of the region
  uint32_t world;
  uint32_t reduction;
  uint8_t* peers[kMaxWorld];  ///< scratch region of this protocol on every rank; this rank's at [rank]
  uint32_t dtype;
  uint32_t algorithm;
  uint32_t codec;                 ///< kCodec*; only the two algorithms of sentinel packets support codecs
  const PeerTable* inputs;        ///< kTwoShotZeroCopy: device memory
  const PeerTable* outputs;       ///< kTwoShotZeroCopy, or kRing with direct output: device memory; else null
  uint64_t inputs_offset_bytes;   ///< from every address of `inputs` to the operand
  uint64_t outputs_offset_bytes;  ///< from every address of `outputs` to the operand
};

/// Algorithms of an exchange.
constexpr uint32_t kExchangePackets = 0;     ///< LL packets through scratch; any memory
constexpr uint32_t kExchangePush = 1;        ///< each rank writes into the outputs of the others
constexpr uint32_t kExchangeRelay = 2;       ///< each rank reads a share of the root's data and writes it to all others
constexpr uint32_t kReducePackets = 3;       ///< LL packets through scratch; a rank reduces what it receives from all ranks
constexpr uint32_t kReducePull = 4;          ///< each rank reads all inputs and reduces them
constexpr uint32_t kReduceLocal = 5;         ///< a rank reduces parts already copied to it; `from` has one per rank
constexpr uint32_t kRelayPackets = 6;        ///< kExchangeRelay by LL packets through scratch; any memory
constexpr uint32_t kReduceSentinels = 7;     ///< kReducePackets by sentinel packets, floating types
constexpr uint32_t kExchangeEscaped = 8;     ///< kExchangePackets by sentinel packets, which are escaped so that they carry any bits
constexpr uint32_t kExchangeAlgorithms = 9;  ///< the number of algorithms

/// Packets per line of memory: shares of kRelayPackets start at a line.
constexpr uint32_t kRelayLine = 8;

/// kExchangeEscaped: packets in a unit, which also has an escape word; units in a group; packets in a group, including
/// its escape words.
constexpr uint32_t kEscapedUnitPackets = 4;
constexpr uint32_t kEscapedGroupUnits = 32;
constexpr uint32_t kEscapedGroupPackets = kEscapedGroupUnits * (4 * kEscapedUnitPackets + 1) / 4;

/// Counts that ranks exchange when each knows only its own.
struct Learned {
  uint64_t largest_bytes;            ///< most bytes that any rank sends any other
  uint64_t direct;                   ///< nonzero: zero-copy, because peers can address every rank's output
  uint64_t theirs_bytes[kMaxWorld];  ///< from the table's addresses to the place of this rank's part
};

/// Value of Status::theirs[1] when the exchange must be zero-copy and peers cannot address the output of Status::peer.
/// It is no count of bytes.
constexpr uint64_t kNotReached = ~uint64_t{0};

/// The exchange of counts. LL packets, four per rank.
struct CountsArgs {
  uint8_t* peers[kMaxWorld];  ///< scratch region: [epoch parity][source][4] packets
  BlockState* state;          ///< own; entry 0 only
  Learned* learned;           ///< own device memory
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint64_t send_bytes[kMaxWorld];     ///< to each rank
  uint64_t receive_bytes[kMaxWorld];  ///< expected from each rank
  uint64_t offset_bytes[kMaxWorld];   ///< from this rank's output, as peers know it, to the place of each rank's part
  uint64_t largest_bytes;             ///< most that this rank sends or expects
  uint64_t direct;                    ///< nonzero: peers can address this rank's output
  uint64_t direct_from_bytes;         ///< zero-copy from this largest_bytes on; 0: never through scratch; equal on every rank
};

/// One exchange: every rank sends every other a strip of bytes. Strips of more than one row are parts of tensors, all
/// of equal size.
struct ExchangeArgs {
  BlockState* state;  ///< own, of this region
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint32_t lanes_log2;             ///< packets of one source that a block handles at once
  uint32_t algorithm;              ///< kExchange*
  uint32_t op;                     ///< kOp*, reported when a wait gives up
  uint32_t root;                   ///< kExchangeRelay, kRelayPackets: source rank; kReducePull: target rank
  uint32_t dtype;                  ///< type of reduced elements
  uint32_t reduction;              ///< kSum...
  uint64_t slot_packets;           ///< through scratch: capacity for one source in one buffer of the region
  uint64_t largest_bytes;          ///< most bytes that any rank sends any other
  const Learned* learned;          ///< own device memory; null where ranks know each other's counts
  uint8_t* peers[kMaxWorld];       ///< region of every rank: scratch of a packet protocol, or barrier flags
  const uint8_t* from[kMaxWorld];  ///< own: data for each rank
  uint8_t* into[kMaxWorld];        ///< own: place of the data from each rank
  uint64_t send_bytes[kMaxWorld];
  uint64_t receive_bytes[kMaxWorld];
  uint64_t row_bytes;                ///< 0: every strip is one row
  uint64_t from_pitch_bytes;         ///< from one row of `from` to the next
  uint64_t into_pitch_bytes;         ///< from one row of `into` to the next
  const PeerTable* table;            ///< direct: device memory; the operand that peers access
  uint64_t theirs_bytes[kMaxWorld];  ///< zero-copy: from the table's addresses to what this rank accesses
  uint32_t sources;                  ///< reductions through scratch: each result is that of this many consecutive
                                     ///< ranks; 0: of all ranks
};

/// Actions of a signal kernel.
constexpr uint32_t kSignalPut = 0;
constexpr uint32_t kSignalWait = 1;
constexpr uint32_t kSignalBarrier = 2;
constexpr uint32_t kSignalTake = 3;

/// One operation on a signal pad. A pad is channels x world words, [channel][source].
struct SignalArgs {
  uint32_t* pads[kMaxWorld];  ///< the pad of every rank
  uint32_t* sent;             ///< own: signals put so far, [channel][target]
  uint32_t* awaited;          ///< own: signals waited for so far, [channel][source]
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint32_t channel;
  uint32_t peer;    ///< put, wait; take: bit r is rank r, which may be this one
  uint32_t action;  ///< kSignal*
  uint32_t op;      ///< barrier, take: kOp*, reported when a wait gives up
};

/// The comparison of a call before it runs. LL packets, two per rank.
struct AgreeArgs {
  uint8_t* peers[kMaxWorld];  ///< scratch region: [epoch parity][source][2] packets
  BlockState* state;          ///< own; entry 0 only
  uint64_t ours[2];           ///< descriptor: bytes, then packed op | dtype << 8 | algorithm << 16 | reduction << 24
  Wait wait;
  uint32_t rank;
  uint32_t world;
};

/// Plain stores to peers, or an empty kernel, to measure the hardware. As large as AllReduceArgs, so that its launch
/// costs as much.
struct ProbeArgs {
  const void* from;     ///< own; 16-byte aligned
  void* to[kMaxWorld];  ///< the first `targets` of them receive every packet
  uint64_t packets;     ///< of 16 bytes
  uint32_t targets;
  uint32_t reserved[27];
};

/// An empty kernel. As large as ReceiveArgs, the largest block of experts, so that its launch costs as much.
struct WideProbeArgs {
  uint64_t reserved[54];
};

/// Columns of the sum over a row: packet p belongs to column p modulo this.
constexpr uint32_t kNormColumns = 1024;
/// Columns that one thread adds at once, as a tree of neighbours.
constexpr uint32_t kNormFold = 8;
/// Words of the columns and the levels of their tree, 1024 + 128 + 16 + 2 + 1, rounded up to whole packets.
constexpr uint32_t kNormWords = 1172;
/// Block-shared memory of a norm of summed rows: votes, then the columns.
constexpr uint32_t kNormSharedBytes = 16 + kNormWords * 4;
/// Words for the largest absolute values of a row or of its groups. In a quantised norm they follow the columns.
constexpr uint32_t kNormLargestWords = kNormWords;
/// Most blocks of a cluster; every chip with clusters supports this size.
constexpr uint32_t kMostCluster = 8;
/// Most threads a block of a norm by clusters may have.
constexpr uint32_t kMostClusteredThreads = 512;
/// Block-shared memory of a norm by clusters: two rounds of words of its teams, and the barriers that count their
/// arrival. In addition there are eight bytes for each thread of a tile after the first.
constexpr uint32_t kClusteredSharedBytes = 528;
/// Most packets of a column in a norm by clusters. Each packet of a column is in a different tile of the row.
constexpr uint32_t kMostClusteredTiles = 4;
/// The distribution of the rows of a two-shot over clusters: a cluster takes rows of all shares, or of one share.
constexpr uint32_t kClusteredByRow = 1, kClusteredByShare = 2;
/// Most threads of a block whose cluster takes rows of one share. The limit lets three such blocks reside on a
/// multiprocessor.
constexpr uint32_t kMostByShareThreads = 256;
/// Most packets in a group of a row that a norm by clusters quantises.
constexpr uint32_t kMostClusteredGroup = 32;
/// Packets of a line of memory.
constexpr uint32_t kLinePackets = 8;
/// Most packets of a row that a block keeps in shared memory.
constexpr uint32_t kStagePackets = 1024;
/// Most blocks of a norm: its blocks have no state.
constexpr uint32_t kMostNormBlocks = 65535;
/// Most elements of a row.
constexpr uint32_t kMostHidden = 1u << 20;
/// Most elements of an output row.
constexpr uint32_t kMostWidth = 1u << 31;

/// Scalings of quantised rows: the elements that share a scale, and the type of the scale. The numbers cross the
/// language boundary.
constexpr uint32_t kScalingStatic = 0;    ///< the caller's scale for all rows
constexpr uint32_t kScalingPerToken = 1;  ///< a row, f32
constexpr uint32_t kScalingPerGroup = 2;  ///< a group of a row, f32
constexpr uint32_t kScalingMx = 3;        ///< a group of a row, e8m0
constexpr uint32_t kScalingNvfp4 = 4;     ///< 16 elements of a row, e4m3 times the caller's scale for all rows
constexpr uint32_t kScalings = 5;         ///< the number of scalings

/// Formats of quantised values. The numbers cross the language boundary.
constexpr uint32_t kNarrowE4M3 = 0;
constexpr uint32_t kNarrowE5M2 = 1;
constexpr uint32_t kNarrowE2M1 = 2;  ///< two values a byte, the even element in the low bits
constexpr uint32_t kNarrowI8 = 3;
constexpr uint32_t kNarrows = 4;  ///< the number of formats

/// Layouts of scales: the place of the scale of group g of a row. The numbers cross the language boundary.
constexpr uint32_t kScalesRows = 0;           ///< [row][g]
constexpr uint32_t kScalesColumns = 1;        ///< [g][row]
constexpr uint32_t kScalesPackedColumns = 2;  ///< bytes: four groups a word, [g / 4][row], columns padded to four words
constexpr uint32_t kScalesSwizzled128x4 = 3;  ///< bytes: blocks of 128 rows by 4 groups
constexpr uint32_t kScaleLayouts = 4;         ///< the number of layouts
/// The number of elements in a group is a multiple of this, which is whole packets for every type of rows.
constexpr uint32_t kGroupStep = 16;
/// Most elements of a group that has a scale.
constexpr uint32_t kMostGroup = 1u << 20;

/// Quantised rows of a norm.
struct QuantisedRows {
  void* values;              ///< own; rows of `width` quantised values; null: not requested
  void* scales;              ///< own; null: kScalingStatic
  const float* known_scale;  ///< own; kScalingStatic: the scale; kScalingNvfp4: the global scale; else null
  uint64_t first_row;        ///< index of the launch's row 0 among the quantised rows; modulo 2^64, if only own rows
                             ///< are quantised
  uint64_t all_rows;         ///< the number of quantised rows, on which layouts in columns depend
  uint32_t scaling;          ///< kScaling*
  uint32_t to;               ///< kNarrow*
  uint32_t elems;            ///< elements in a group; 0: no groups
  uint32_t layout;           ///< kScales*
};

/// RMSNorm of rows whose sum over the ranks is known: x = T(input + residual), y = T(x (weight + offset) r).
struct NormArgs {
  const void* input;     ///< own; rows of `hidden` elements, `input_pitch` apart
  const void* residual;  ///< own; null: none
  const void* weight;    ///< own; `hidden` elements
  void* residual_out;    ///< own; x; null: not requested
  void* output;          ///< own; y, in rows of `width` elements; null: not requested
  uint64_t rows;
  uint64_t input_pitch;
  uint32_t hidden;
  uint32_t width;
  uint32_t dtype;         ///< of rows: kF32, kF16 or kBF16
  uint32_t weight_dtype;  ///< that of rows, or kF32
  float epsilon;
  float weight_offset;
  QuantisedRows quantised;
};

/// LayerNorm of rows whose sum over the ranks is known: y = T((x - mean) (weight + offset) r + bias).
struct LayerNormArgs : NormArgs {
  const void* bias;  ///< own; `hidden` elements of the weight's type; null: none
};

/// A sum and norm in one kernel: kOneShotSentinel, kTwoShotSentinel, or kTwoShotZeroCopy if rows are gathered. `sum`
/// has the region, the wait and the operands of peers; `norm` has the own operands, whose input rows are contiguous. If
/// rows are scattered, rank r has rows [r share_rows, r share_rows + rows / world) of the operands. The address of an
/// operand that contains only these rows is moved back, so that all operands have equal numbers of rows. Fields lie in
/// few lines of constant memory, as in AllReduceArgs: those of rows in three, and those of `sum` in two.
struct FusedNormArgs {
  NormArgs norm;
  uint64_t share_rows;  ///< rows from the share of one rank to that of the next; 0: rows are not scattered
  uint32_t op;          ///< the number of the operation
  uint32_t gathers;     ///< for scattered rows: nonzero: the output has the rows of all ranks
  uint32_t clustered;   ///< nonzero: by clusters of blocks, see takes_clusters; kClustered*
  AllReduceArgs sum;
  const PeerTable* values;       ///< kTwoShotZeroCopy with quantised values: device memory; else null
  const PeerTable* scales;       ///< kTwoShotZeroCopy with quantised values that have scales: device memory; else null
  uint64_t values_offset_bytes;  ///< from every address of `values` to the quantised values
  uint64_t scales_offset_bytes;  ///< from every address of `scales` to the scales
};

/// A sum and LayerNorm in one kernel, by blocks.
struct FusedLayerNormArgs : FusedNormArgs {
  const void* bias;  ///< as in LayerNormArgs
};

/// Launch geometry, a pure function of world size, bytes, type and algorithm.
struct Geometry {
  uint32_t blocks;
  uint32_t threads;       ///< in a block
  uint32_t shared_bytes;  ///< in a block
  uint32_t programmatic;  ///< nonzero: may start while its predecessor drains (dependent launch)
  uint32_t cluster = 0;   ///< blocks in a cluster; 0: the kernel does not use clusters
};

/// The kind of a launch, one of launches.def. The numbers cross the language boundary.
enum class Kind : uint32_t {
#define LAUNCH(name, Args, bytes) name,
#include "kernels/launches.def"
#undef LAUNCH
};

#define LAUNCH(name, Args, bytes)                                                                                                  \
  static_assert(sizeof(Args) == (bytes) && alignof(Args) <= 16 && std::is_trivially_copyable_v<Args>, "as in src/kernel/args.rs"); \
  constexpr Kind kind_of(const Args&) { return Kind::name; }
#include "kernels/launches.def"
#undef LAUNCH

static_assert(sizeof(Status) == 80, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Progress) == 64, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Wait) == 24, "mirrored in src/kernel/args.rs");
static_assert(sizeof(BlockState) == 8, "mirrored in src/kernel/args.rs");
static_assert(sizeof(PeerTable) == 128, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Multicast) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Learned) == 144, "mirrored in src/kernel/args.rs");
static_assert(sizeof(PairEnd) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(RoutingHeader) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Geometry) == 20, "mirrored in src/kernel/args.rs");

}  // namespace symmetra::kernels
