// Argument blocks of the kernels: plain data, defined here for both languages. bindgen generates src/kernel/args.rs
// from this file. Both sides assert sizes; Rust also asserts offsets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/heap_probe.hpp"
#include "kernels/multicast.hpp"
#include "kernels/pairs.hpp"
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
constexpr uint32_t kElementTypes = 12;  ///< how many there are

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
constexpr uint32_t kAllReduceAlgorithms = 7;  ///< how many there are for memory of all kinds
constexpr uint32_t kMulticastOneShot = 7;     ///< every rank sums all inputs by multicast
constexpr uint32_t kMulticastTwoShot = 8;     ///< every rank sums a share by multicast and stores it by multicast

/// Codecs: how a quantised all-reduce sends values. The numbers cross the language boundary.
constexpr uint32_t kCodecNone = 0;  ///< as they are
constexpr uint32_t kCodecFp8 = 1;   ///< e4m3, 8 bits
constexpr uint32_t kCodecInt8 = 2;
constexpr uint32_t kCodecInt6 = 3;
constexpr uint32_t kCodecInt4 = 4;
constexpr uint32_t kCodecs = 5;  ///< how many there are
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

/// Per-block protocol state in own device memory, kMaxBlocks entries per region. All entries advance together, one step
/// per call, whatever the grid: block b of a grid of g blocks reads entry b and writes entries b, b + g, b + 2g...
struct BlockState {
  uint32_t epoch;     ///< calls made in this region, modulo kEpochModulus
  uint32_t previous;  ///< sentinels: packets per source of the previous call; ring: counters of its channels
};
/// Divisible by 2 and 3, so that buffers rotate evenly across the wrap.
constexpr uint32_t kEpochModulus = 0xFFFFFFFCu;

/// One all-reduce. Fields that a kernel needs first come first: constant memory is cold when a kernel starts, and one
/// line of it (64 bytes, of which a launch takes 16) costs a few percent of a small message. Everything up to
/// wait.progress is on the first line.
struct AllReduceArgs {
  const void* input;
  void* output;
  uint64_t count;       ///< elements
  BlockState* state;    ///< own, of this region
  uint32_t lanes_log2;  ///< packets of one source that a block handles at once
  uint32_t rank;
  Wait wait;
  uint64_t slot_packets;  ///< room for one source in one buffer of the region
  uint32_t world;
  uint32_t dtype;
  uint32_t algorithm;
  uint32_t reduction;
  uint32_t codec;                 ///< kCodec*; other than kCodecNone by the two algorithms of sentinel packets alone
  uint8_t* peers[kMaxWorld];      ///< scratch region of this protocol on every rank; this rank's at [rank]
  const PeerTable* inputs;        ///< kTwoShotZeroCopy: device memory
  const PeerTable* outputs;       ///< kTwoShotZeroCopy, or kRing with direct output: device memory; else null
  uint64_t inputs_offset_bytes;   ///< from every address of `inputs` to the operand
  uint64_t outputs_offset_bytes;  ///< from every address of `outputs` to the operand
};

/// How an exchange is done.
constexpr uint32_t kExchangePackets = 0;     ///< LL packets through scratch; any memory
constexpr uint32_t kExchangePush = 1;        ///< each rank writes into the outputs of the others
constexpr uint32_t kExchangeRelay = 2;       ///< each rank reads a share of the root's data and writes it to all others
constexpr uint32_t kReducePackets = 3;       ///< LL packets through scratch; a rank reduces what it gets from all
constexpr uint32_t kReducePull = 4;          ///< each rank reads all inputs and reduces them
constexpr uint32_t kReduceLocal = 5;         ///< a rank reduces parts already copied to it; `from` has one per rank
constexpr uint32_t kRelayPackets = 6;        ///< kExchangeRelay by LL packets through scratch; any memory
constexpr uint32_t kExchangeAlgorithms = 7;  ///< how many there are

/// Packets per line of memory: shares of kRelayPackets start at a line.
constexpr uint32_t kRelayLine = 8;

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
  uint64_t slot_packets;           ///< through scratch: room for one source in one buffer of the region
  uint64_t largest_bytes;          ///< most bytes that any rank sends any other
  const Learned* learned;          ///< own device memory; null where ranks know each other's counts
  uint8_t* peers[kMaxWorld];       ///< region of every rank: scratch of an LL protocol, or barrier flags
  const uint8_t* from[kMaxWorld];  ///< own: data for each rank
  uint8_t* into[kMaxWorld];        ///< own: place of the data from each rank
  uint64_t send_bytes[kMaxWorld];
  uint64_t receive_bytes[kMaxWorld];
  uint64_t row_bytes;                ///< 0: every strip is one row
  uint64_t from_pitch_bytes;         ///< from one row of `from` to the next
  uint64_t into_pitch_bytes;         ///< from one row of `into` to the next
  const PeerTable* table;            ///< direct: device memory; the operand that peers access
  uint64_t theirs_bytes[kMaxWorld];  ///< zero-copy: from the table's addresses to what this rank accesses
};

/// Actions of a signal kernel.
constexpr uint32_t kSignalPut = 0;
constexpr uint32_t kSignalWait = 1;
constexpr uint32_t kSignalBarrier = 2;

/// One operation on a signal pad. A pad is channels x world words, [channel][source].
struct SignalArgs {
  uint32_t* pads[kMaxWorld];  ///< the pad of every rank
  uint32_t* sent;             ///< own: signals put so far, [channel][target]
  uint32_t* awaited;          ///< own: signals waited for so far, [channel][source]
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint32_t channel;
  uint32_t peer;    ///< put, wait
  uint32_t action;  ///< kSignal*
  uint32_t op;      ///< kSignalBarrier: kOp*, reported when a wait gives up
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

/// Columns of the sum over a row: packet p belongs to column p modulo this.
constexpr uint32_t kNormColumns = 1024;
/// Columns that one thread adds at once, as a tree of neighbours.
constexpr uint32_t kNormFold = 8;
/// Words of the columns and the levels of their tree, 1024 + 128 + 16 + 2 + 1, rounded up to whole packets.
constexpr uint32_t kNormWords = 1172;
/// Block-shared memory of a norm of summed rows: votes, then the columns.
constexpr uint32_t kNormSharedBytes = 16 + kNormWords * 4;
/// Words of what is largest in a row, or in its groups: in a quantised norm, behind the columns.
constexpr uint32_t kNormLargestWords = kNormWords;
/// Most blocks of a cluster; every chip with clusters has room for so many.
constexpr uint32_t kMostCluster = 8;
/// Most threads a block of a norm by clusters may have.
constexpr uint32_t kMostClusteredThreads = 512;
/// Block-shared memory of a norm by clusters: two rounds of words of its teams, and what counts their arrival. Beside it there
/// are eight bytes for each thread of a tile behind the first.
constexpr uint32_t kClusteredSharedBytes = 528;
/// Most packets of a column in a norm by clusters, each of which another tile of the row has.
constexpr uint32_t kMostClusteredTiles = 4;
/// Most packets of a group of a row that a norm by clusters quantises.
constexpr uint32_t kMostClusteredGroup = 32;
/// Most packets of a row that a block keeps in shared memory.
constexpr uint32_t kStagePackets = 1024;
/// Most blocks of a norm: its blocks have no state.
constexpr uint32_t kMostNormBlocks = 65535;
/// Most elements of a row.
constexpr uint32_t kMostHidden = 1u << 20;

/// How rows are quantised: what has a scale of its own, and how that is stored. The numbers cross the language boundary.
constexpr uint32_t kScalingStatic = 0;    ///< the caller's scale for all rows
constexpr uint32_t kScalingPerToken = 1;  ///< a row, f32
constexpr uint32_t kScalingPerGroup = 2;  ///< a group of a row, f32
constexpr uint32_t kScalingMx = 3;        ///< a group of a row, e8m0
constexpr uint32_t kScalingNvfp4 = 4;     ///< 16 elements of a row, e4m3 times the caller's scale for all rows
constexpr uint32_t kScalings = 5;         ///< how many there are

/// Formats of quantised values. The numbers cross the language boundary.
constexpr uint32_t kNarrowE4M3 = 0;
constexpr uint32_t kNarrowE5M2 = 1;
constexpr uint32_t kNarrowE2M1 = 2;  ///< two values a byte, the even element in the low bits
constexpr uint32_t kNarrowI8 = 3;
constexpr uint32_t kNarrows = 4;  ///< how many there are

/// Where the scale of group g of a row is. The numbers cross the language boundary.
constexpr uint32_t kScalesRows = 0;           ///< [row][g]
constexpr uint32_t kScalesColumns = 1;        ///< [g][row]
constexpr uint32_t kScalesPackedColumns = 2;  ///< bytes: four groups a word, [g / 4][row], columns padded to four words
constexpr uint32_t kScalesSwizzled128x4 = 3;  ///< bytes: blocks of 128 rows by 4 groups
constexpr uint32_t kScaleLayouts = 4;         ///< how many there are
/// Groups have a multiple of so many elements, which are whole packets of every type of rows.
constexpr uint32_t kGroupStep = 16;

/// Quantised rows of a norm.
struct QuantisedRows {
  void* values;              ///< own; rows of `width` codes; null: not asked for
  void* scales;              ///< own; null: kScalingStatic
  const float* known_scale;  ///< own; kScalingStatic: the scale; kScalingNvfp4: the scale of scales; else null
  uint64_t first_row;        ///< number of the first row of the launch among all rows of the call
  uint64_t all_rows;         ///< of the call: layouts of columns depend on it
  uint32_t scaling;          ///< kScaling*
  uint32_t to;               ///< kNarrow*
  uint32_t elems;            ///< of a group; without groups 0
  uint32_t layout;           ///< kScales*
};

/// RMSNorm of rows whose sum over the ranks is known: x = T(input + residual), y = T(x (weight + offset) r).
struct NormArgs {
  const void* input;     ///< own; rows of `hidden` elements, `input_pitch` apart
  const void* residual;  ///< own; null: none
  const void* weight;    ///< own; `hidden` elements
  void* residual_out;    ///< own; x; null: not asked for
  void* output;          ///< own; y, in rows of `width` elements; null: not asked for
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

/// A sum and norm in one kernel: kOneShotSentinel, kTwoShotSentinel, or kTwoShotZeroCopy where rows are gathered. Of `sum`,
/// the region and what waits need, and the operands of peers; of `norm`, the own operands, whose input rows follow each
/// other. Where rows are scattered, rank r has rows [r share_rows, r share_rows + rows / world) of the operands. The
/// addresses of an operand that has these rows alone are moved back, so that all operands have equal numbers of rows.
struct FusedNormArgs {
  AllReduceArgs sum;
  NormArgs norm;
  const PeerTable* values;       ///< kTwoShotZeroCopy with codes: device memory; else null
  const PeerTable* scales;       ///< kTwoShotZeroCopy with codes that have scales: device memory; else null
  uint64_t values_offset_bytes;  ///< from every address of `values` to the codes
  uint64_t scales_offset_bytes;  ///< from every address of `scales` to the scales
  uint64_t share_rows;           ///< rows from the share of a rank to that of the next; 0: rows are not scattered
  uint32_t op;                   ///< the number of the operation
  uint32_t gathers;              ///< of scattered rows: nonzero: the output has the rows of all ranks
  uint32_t clustered;            ///< kOneShotSentinel: nonzero: by clusters of blocks; rows are whole packets, see takes_clusters
};

/// What a kernel of experts does.
constexpr uint32_t kExpertHead = 0;      ///< says which experts this rank's tokens go to
constexpr uint32_t kExpertTally = 1;     ///< counts what kExpertHead said, and looks for what is wrong
constexpr uint32_t kExpertRows = 2;      ///< puts this rank's rows into the form in which they travel
constexpr uint32_t kExpertCount = 3;     ///< checks what all ranks said, and counts
constexpr uint32_t kExpertPlace = 4;     ///< finds the place of every row that comes and of every own one
constexpr uint32_t kExpertCopy = 5;      ///< copies rows that came into their places
constexpr uint32_t kExpertBeside = 6;    ///< by rank, kExpertCopy of what is beside rows that are in their places
constexpr uint32_t kExpertGive = 7;      ///< makes of this rank's results the part of every token
constexpr uint32_t kExpertTake = 8;      ///< sums the parts of this rank's tokens
constexpr uint32_t kExpertPush = 9;      ///< writes this rank's rows to the ranks that they go to
constexpr uint32_t kExpertDeliver = 10;  ///< kExpertGive that writes parts into the regions of the ranks of their tokens
constexpr uint32_t kExpertPull = 11;     ///< kExpertTake that reads the parts in the results of all ranks
constexpr uint32_t kExpertSend = 12;     ///< writes heads and rows of this rank's tokens to their ranks, in packets
constexpr uint32_t kExpertReceive = 13;  ///< awaits heads and rows, and puts rows into their places
constexpr uint32_t kExpertReturn = 14;   ///< kExpertGive that writes parts to the ranks of their tokens, in packets
constexpr uint32_t kExpertSum = 15;      ///< kExpertTake that awaits the parts
constexpr uint32_t kExpertKernels = 16;

/// Layouts of rows that a rank received. The numbers cross the language boundary.
constexpr uint32_t kRowsByRank = 0;    ///< a row for each token that has an expert here: by source, token
constexpr uint32_t kRowsByExpert = 1;  ///< a row for each token's expert here: by expert, source, token, place in the token
constexpr uint32_t kRowsPadded = 2;    ///< as by expert, with equal room for every local expert
constexpr uint32_t kRowsBySource = 3;  ///< room for a row of each token of each rank: row `source * max_tokens + token`
constexpr uint32_t kRowLayouts = 4;
/// The layouts with a row a token, a bit each.
constexpr uint32_t kLayoutsByToken = 1u << kRowsByRank | 1u << kRowsBySource;

/// How rows travel. The numbers cross the language boundary.
constexpr uint32_t kWireBytes = 0;    ///< bit for bit
constexpr uint32_t kWireSame = 1;     ///< rows of the caller's type; a NaN may become another
constexpr uint32_t kWireF8 = 2;       ///< e4m3 codes, which the kernel makes, and their scales
constexpr uint32_t kWireGivenF8 = 3;  ///< e4m3 codes and f32 scales of the caller
constexpr uint32_t kWires = 4;

/// Scales of codes. The numbers cross the language boundary.
constexpr uint32_t kCodeScalesF32 = 0;
constexpr uint32_t kCodeScalesPowers = 1;  ///< f32, powers of two
constexpr uint32_t kCodeScalesE8M0 = 2;    ///< powers of two in a byte
constexpr uint32_t kCodeScales = 3;
/// Elements that have a scale in common.
constexpr uint32_t kCodeGroup = 128;

/// Most experts of a token, elements of a row, and copies of experts on all ranks.
constexpr uint32_t kMostTopK = 64;
/// Words of block-shared memory for a thread, of a scan of at most two values.
constexpr uint32_t kScanWords = 2;
constexpr uint32_t kMostExpertHidden = 65536;
constexpr uint32_t kMostCopies = 65534;

/// Most threads of a block of kExpertReceive, kExpertGive, kExpertDeliver, kExpertPull, kExpertReturn and kExpertSum: so few that
/// each has registers for what it loads ahead.
constexpr uint32_t kMostAheadThreads = 512;

/// Greetings of ranks in a region, a word each; behind them flags of the blocks of each rank, a word each.
constexpr uint32_t kExpertGreetingBytes = 128;

/// No token, no row, no place.
constexpr uint32_t kNone = 0xFFFFFFFFu;
/// Rows go through regions, because peers do not address where they belong.
constexpr uint64_t kStaged = 0xFFFFFFFFFFFFFFFFu;

/// What a rank says of its tokens. Behind it: a 32-bit count of pairs for each copy of an expert; a 32-bit count of tokens
/// for each rank; the copy of each pair, 16 bits, 0xFFFF for none, 0xFFFE for an expert that there is not; the weight of each
/// pair, f32.
struct ExpertHead {
  uint32_t tokens;     ///< how many take part: 0 if something is wrong
  uint32_t claimed;    ///< how many the device's count asks for
  uint32_t room;       ///< of how many rows the caller told
  uint32_t bad_token;  ///< the first token with an expert that there is not; kNone: all is right
  int64_t bad_expert;  ///< that expert
  uint32_t wrong;      ///< nonzero: something is, so that no rank gives a row a place
  uint32_t reserved;
};

/// What becomes of rows beside the rows themselves; null: not asked for.
struct ExpertOutputs {
  void* scales;
  uint32_t* counts;     ///< rows of each local expert
  uint32_t* offsets;    ///< first row of each local expert, and behind the last
  int32_t* ids;         ///< local experts: by rank top_k a row, -1 for none; else one a row
  float* weights;       ///< as many
  uint32_t* sources;    ///< rank and token of each row
  uint32_t* index;      ///< by rank: numbers of rows, in the order of experts
  uint64_t scale_rows;  ///< scales in columns: rows of a column
  uint32_t columns;     ///< nonzero: scales in columns
  uint32_t reserved;
};

/// One step of a dispatch or a combine, on this rank alone. Rows that travel are [rank][max_tokens], of row_bytes each.
struct ExpertArgs {
  Wait wait;
  const uint32_t* table;        ///< device memory: first copy of each rank; a word for each expert; choices: see ExpertTable
  uint8_t* heads;               ///< of all ranks, head_bytes each
  uint32_t* state;              ///< own: failed, reserved, counts of local experts, offsets of local experts and behind
  uint32_t* places;             ///< own: of each pair and of each token of all ranks here; of each own token on every rank
  const uint32_t* token_count;  ///< own device memory; null: `tokens`
  const void* ids;              ///< kExpertHead: of each pair of this rank
  const float* weights;         ///< of each pair of this rank; null: 1
  const void* rows;             ///< kExpertRows, kExpertPush: the caller's; kExpertGive, kExpertDeliver: the caller's results
  const float* row_scales;      ///< kExpertRows, kExpertPush with kWireGivenF8
  uint8_t* travelling;          ///< what kExpertRows makes of own rows; all rows that came; parts that go or came
  void* output;                 ///< kExpertCopy: received rows; kExpertTake, kExpertPull: a row a token
  const void* add;              ///< kExpertTake, kExpertPull: null: nothing
  float* sums;                  ///< kExpertTake in steps: sums of tokens so far
  uint64_t head_bytes;
  uint64_t copies_offset;   ///< in a head
  uint64_t weights_offset;  ///< in a head
  uint64_t row_bytes;       ///< of a row that travels
  uint64_t scales_offset;   ///< in a row that travels
  uint64_t capacity;        ///< most rows a rank may receive; kRowsPadded: rows of a local expert
  uint32_t task;            ///< kExpert*
  uint32_t rank;
  uint32_t world;
  uint32_t op;             ///< kOp*, for the status
  uint32_t dtype;          ///< of the caller's rows and results: kF32, kF16 or kBF16
  uint32_t wire;           ///< kWire*
  uint32_t scales;         ///< kCodeScales*
  uint32_t payload_bytes;  ///< of a row, without scales
  uint32_t layout;         ///< kRows*
  uint32_t align;          ///< kRowsByExpert: rows of an expert begin at multiples
  uint32_t experts;        ///< logical
  uint32_t copies;         ///< of experts, on all ranks
  uint32_t first_copy;     ///< of this rank
  uint32_t local;          ///< copies on this rank
  uint32_t top_k;
  uint32_t hidden;
  uint32_t tokens;  ///< of the caller
  uint32_t max_tokens;
  uint32_t id_bytes;  ///< 4 or 8
  uint32_t weighs;    ///< kExpertGive, kExpertTake: nonzero: results count by their weights
  uint32_t exact;     ///< nonzero: each result travels, and step says which of a token's
  uint32_t step;
  ExpertOutputs into;
  BlockState* calls;            ///< own: of the barrier, or in packets of this kernel
  uint64_t barrier_offset;      ///< kExpertPush, kExpertDeliver, kExpertPull: of greetings and flags in a region
  uint64_t travelling_offset;   ///< of `travelling` in a region, or of the packets of rows or parts of the first buffer
  uint64_t tellings_offset;     ///< in packets: of the packets of heads, or of greetings, of the first buffer
  uint64_t buffer_bytes;        ///< in packets: from a buffer to the next
  uint32_t buffers;             ///< in packets: how many; a divisor of kEpochModulus
  uint32_t telling_packets;     ///< in packets: room for the head of a rank
  uint16_t rows_at_once;        ///< kExpertReceive: tokens that a block takes at once
  uint16_t parts;               ///< kExpertPull, kExpertReturn, kExpertSum: blocks that share a token; else 1
  uint16_t follows;             ///< kExpertReceive, kExpertSum: nonzero: the launch before is that of the sending kernel; kExpertPush by
                                ///< source: nonzero: another dispatch of a routing, whose pairs all heads have
  uint16_t holds;               ///< kExpertReceive: nonzero: a block's memory has the copies of all heads; kExpertReturn with a row a
                                ///< token: nonzero: own parts stay where they are, and kExpertSum has their address in `rows`
  uint64_t placed_offset;       ///< by rank, from a region to received rows (kExpertPush) or results (kExpertPull); kStaged
  uint8_t* regions[kMaxWorld];  ///< of every rank, for kernels that write or read there
};

/// Launch geometry, a pure function of world size, bytes, type and algorithm.
struct Geometry {
  uint32_t blocks;
  uint32_t threads;       ///< a block
  uint32_t shared_bytes;  ///< a block
  uint32_t programmatic;  ///< nonzero: may start while its predecessor drains (dependent launch)
  uint32_t cluster = 0;   ///< blocks of a cluster; 0: the kernel knows none
};

/// What a launch runs, one of launches.def. The numbers cross the language boundary.
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

static_assert(sizeof(Status) == 56, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Progress) == 16, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Wait) == 24, "mirrored in src/kernel/args.rs");
static_assert(sizeof(BlockState) == 8, "mirrored in src/kernel/args.rs");
static_assert(sizeof(PeerTable) == 128, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Multicast) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Learned) == 144, "mirrored in src/kernel/args.rs");
static_assert(sizeof(PairEnd) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(ExpertHead) == 32, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Geometry) == 20, "mirrored in src/kernel/args.rs");

}  // namespace symmetra::kernels
