// The argument blocks of the expert kernels: a part of args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

struct BlockState;

/// The tasks of the expert kernels. Other kinds of launch have no tasks.
constexpr uint32_t kRouteHeader = 0;  ///< writes the expert replicas of this rank's tokens into the own routing header
constexpr uint32_t kRouteTally = 1;   ///< counts the pairs that kRouteHeader wrote, and validates them
constexpr uint32_t kRouteCount = 2;   ///< validates the routing headers of all ranks, and counts rows
constexpr uint32_t kRoutePlace = 3;   ///< computes the place of every received row and of every own row
constexpr uint32_t kRouteTasks = 4;
constexpr uint32_t kMoveStage = 0;     ///< stages this rank's rows in their wire format
constexpr uint32_t kMoveCopy = 1;      ///< copies received rows to their places
constexpr uint32_t kMoveMetadata = 2;  ///< kMoveCopy without the rows: writes the metadata of rows that senders have placed
constexpr uint32_t kMoveTasks = 3;
constexpr uint32_t kCombineSend = 0;     ///< computes this rank's part of every token from this rank's results
constexpr uint32_t kCombineReceive = 1;  ///< sums the parts of this rank's tokens
constexpr uint32_t kCombineTasks = 2;

/// Layouts of received rows. The numbers cross the language boundary.
constexpr uint32_t kRowsByRank = 0;    ///< one row for each token that has an expert here, in the order of source and token
constexpr uint32_t kRowsByExpert = 1;  ///< one row for each local expert of a token, in the order of expert, source,
                                       ///< token, place in the token
constexpr uint32_t kRowsPadded = 2;    ///< as by expert, with the same capacity for every local expert
constexpr uint32_t kRowsBySource = 3;  ///< one slot for each token of each rank: row `source * max_tokens + token`
constexpr uint32_t kRowLayouts = 4;
/// The layouts with one row for each token, one bit each.
constexpr uint32_t kLayoutsByToken = 1u << kRowsByRank | 1u << kRowsBySource;

/// Wire formats of rows. The numbers cross the language boundary.
constexpr uint32_t kWireBytes = 0;    ///< bit for bit
constexpr uint32_t kWireSame = 1;     ///< rows of the caller's type; a NaN may become another
constexpr uint32_t kWireF8 = 2;       ///< e4m3 values that the kernel quantises, and their scales
constexpr uint32_t kWireGivenF8 = 3;  ///< e4m3 values and f32 scales from the caller
constexpr uint32_t kWires = 4;

/// Formats of the scales of quantised values. The numbers cross the language boundary.
constexpr uint32_t kCodeScalesF32 = 0;
constexpr uint32_t kCodeScalesPowers = 1;  ///< f32, powers of two
constexpr uint32_t kCodeScalesE8M0 = 2;    ///< powers of two in a byte
constexpr uint32_t kCodeScales = 3;
/// Elements that share a scale.
constexpr uint32_t kCodeGroup = 128;

/// The largest top-k, the largest number of elements in a row, and the largest number of expert replicas on all ranks.
constexpr uint32_t kMostTopK = 64;
/// Words of block-shared memory that a scan of at most two values needs for each thread.
constexpr uint32_t kScanWords = 2;
constexpr uint32_t kMostExpertHidden = 65536;
constexpr uint32_t kMostReplicas = 65534;
/// The largest number of experts whose table words a block of SendArgs stages in block-shared memory.
constexpr uint32_t kMostStagedExperts = 1024;
/// Words of block-shared memory: two for each rank, and four for each expert of a token.
constexpr uint32_t kExpertWords = 2 * kMaxWorld + 4 * kMostTopK;

/// Most threads of a block of a receive in packets and of a combine, except kCombineReceive on one rank. The limit leaves
/// each thread enough registers for data that it prefetches.
constexpr uint32_t kMostAheadThreads = 512;

/// Most blocks of an expert kernel that send start flags to other ranks.
constexpr uint32_t kStartFlagBlocks = 8;
/// Layout of the barrier area of a region: start flags of all ranks, one word for each flag block; then the verdicts of
/// the own flag blocks, one RoutingHeader each; then the end flags of the blocks of each rank, one word each.
constexpr uint32_t kStartFlagBytes = 512;
constexpr uint32_t kVerdictBytes = 384;

/// No token, no row, no place.
constexpr uint32_t kNone = 0xFFFFFFFFu;
/// The offset of an operand that peers cannot address: its rows go through regions.
constexpr uint64_t kStaged = 0xFFFFFFFFFFFFFFFFu;

/// The routing header of a rank. It is followed by a u32 count of pairs for each expert replica; a u32 count of tokens
/// for each rank; the u16 expert replica of each pair, where 0xFFFF means none and 0xFFFE an invalid expert id; and the
/// f32 weight of each pair.
struct RoutingHeader {
  uint32_t tokens;     ///< tokens that take part; 0 if this rank found an error
  uint32_t claimed;    ///< tokens that the count in device memory asks for
  uint32_t room;       ///< tokens that the caller has rows for
  uint32_t bad_token;  ///< the first token with an invalid expert id; kNone: all ids are valid
  int64_t bad_expert;  ///< that expert
  uint32_t wrong;      ///< nonzero: this rank found an error, so no rank assigns places to rows
  uint32_t reserved;
};

/// The fields of all expert kernels: the call, the layer, and the slot of the dispatch. The fields that most kernels use
/// come first, because constant memory is cold when a kernel starts: see AllReduceArgs. Neighbouring
/// words belong to different kernels, because one load of both words would take registers. The blocks below add fields.
struct ExpertArgs {
  Wait wait;
  BlockState* calls;  ///< own: of the barrier, followed by two words for Turns; with packets, of this kernel
  uint32_t rank;
  uint32_t world;
  uint32_t tokens;  ///< of the caller
  uint32_t top_k;
  uint32_t max_tokens;
  uint32_t align;  ///< kRowsByExpert: the first row of an expert is a multiple of this
  uint32_t hidden;
  uint32_t first_replica;  ///< the first expert replica of this rank
  uint32_t layout;         ///< kRows*
  uint32_t local;          ///< expert replicas on this rank
  uint32_t experts;        ///< logical experts
  uint32_t replicas;       ///< expert replicas on all ranks
  const uint32_t* table;   ///< device memory: first replica of each rank; a word for each expert; choices: see ExpertTable
  uint8_t* headers;        ///< routing headers of all ranks, header_bytes each
  uint32_t* state;         ///< own: failed, rows, counts of local experts, offsets of local experts
  uint32_t* places;        ///< own: places of each pair and each token of all ranks here, and of each own token on every rank
  uint64_t header_bytes;
  uint64_t replicas_offset;  ///< in a routing header
  uint64_t weights_offset;   ///< in a routing header
  uint64_t capacity;         ///< most rows that a rank may receive; kRowsPadded: capacity of each local expert
};

/// The caller's routing: the experts of the tokens of this rank.
struct ExpertRouting {
  const void* ids;              ///< of each pair of this rank
  const float* weights;         ///< of each pair of this rank; null: 1
  const uint32_t* token_count;  ///< own device memory; null: ExpertArgs::tokens
  uint32_t id_bytes;            ///< 4 or 8
  uint32_t reserved;
};

/// Outputs for the rows of each local expert; null: not requested.
struct ExpertCounts {
  uint32_t* rows;     ///< rows of each local expert
  uint32_t* offsets;  ///< first row of each local expert, and the end of the last expert's rows
};

/// Routing headers and places, on this rank alone.
struct RouteArgs : ExpertArgs {
  ExpertRouting routing;  ///< kRouteHeader, kRouteTally
  ExpertCounts counts;    ///< kRouteCount
  uint32_t task;          ///< kRoute*
  uint32_t pair_places;   ///< kRoutePlace: nonzero: computes the places of pairs too
};

/// The caller's rows of a dispatch, and their scales with kWireGivenF8.
struct ExpertRows {
  const void* values;
  const float* scales;
};

/// The fields of all kernels that move the rows of a dispatch. A staged row has row_bytes bytes.
struct RowArgs : ExpertArgs {
  uint64_t row_bytes;
  uint64_t scales_offset;  ///< in a staged row
  uint32_t payload_bytes;  ///< of a row, without scales
  uint32_t wire;           ///< kWire*
  uint32_t scales;         ///< kCodeScales*
  uint32_t dtype;          ///< of the caller's rows: kF32, kF16 or kBF16
};

/// Outputs for received rows and their metadata; null: not requested.
struct ExpertOutputs {
  void* rows;
  void* scales;
  int32_t* ids;         ///< local experts: by rank top_k a row, -1 for none; else one a row
  float* weights;       ///< same count and order as ids
  uint32_t* sources;    ///< rank and token of each row
  uint32_t* index;      ///< by rank: row numbers, in the order of experts
  uint64_t scale_rows;  ///< scales in columns: rows in a column
  uint32_t columns;     ///< nonzero: scales in columns
  uint32_t reserved;
};

/// Staged rows, on this rank alone.
struct MoveArgs : RowArgs {
  ExpertRows rows;     ///< kMoveStage
  uint8_t* staged;     ///< rows of all ranks, [rank][max_tokens]
  ExpertOutputs into;  ///< kMoveCopy, kMoveMetadata
  uint32_t task;       ///< kMove*
  uint32_t reserved;
};

/// The regions of all ranks, for kernels that access the memory of peers between two barriers.
struct ExpertPeers {
  uint64_t barrier_offset;  ///< of the start and end flags in a region
  uint8_t* regions[kMaxWorld];
};

/// Offsets from a region to operands that peers address, or kStaged.
struct PlacedRows {
  uint64_t rows;     ///< received rows
  uint64_t scales;   ///< by source: scales of received rows, in order of rows
  uint64_t ids;      ///< by source: the ids of received rows
  uint64_t weights;  ///< by source: the weights of received rows
};

/// Arguments of the kernels that write this rank's rows to the ranks of their experts.
struct PushArgs : RowArgs {
  ExpertRows rows;
  ExpertRouting routing;   ///< by source, in the first dispatch of a routing
  uint64_t staged_offset;  ///< of the staged rows in a region, [rank][max_tokens]
  PlacedRows placed;
  uint32_t again;  ///< by source: nonzero: another dispatch of the same routing, whose pairs are in the own routing header
  uint32_t reserved;
  ExpertPeers peers;
};

/// The packets of one direction. A buffer contains control packets (in a dispatch those of routing headers, in a combine
/// start flags), followed by data packets (rows or parts).
struct ExpertPacketArea {
  uint32_t buffers;          ///< a divisor of kEpochModulus
  uint32_t control_packets;  ///< from one rank to another
  uint64_t buffer_bytes;     ///< from one buffer to the next
  uint64_t data_offset;      ///< of the data packets of the first buffer in a region
  uint64_t control_offset;   ///< of the control packets of the first buffer in a region
  uint8_t* regions[kMaxWorld];
};

/// Arguments of the kernels that send routing headers and rows of this rank's tokens to their ranks, in packets.
struct SendArgs : RowArgs {
  ExpertRows rows;
  ExpertRouting routing;
  ExpertPacketArea packets;
};

/// Arguments of the kernels that wait for routing headers and rows in packets, and write rows to their places.
struct ReceiveArgs : RowArgs {
  ExpertPacketArea packets;
  uint32_t rows_at_once;    ///< tokens that a block receives together
  uint32_t holds_replicas;  ///< nonzero: block-shared memory holds the replicas of all routing headers
  uint32_t follows;         ///< nonzero: the previous launch is that of the sending kernel
  uint32_t reserved;
  ExpertCounts counts;
  ExpertOutputs into;
};

/// The fields of all kernels of a combine. The part of a token that a rank sends has part_bytes bytes.
struct PartArgs : ExpertArgs {
  const void* results;  ///< the caller's results
  void* output;         ///< one row for each token
  const void* add;      ///< added to the sums; null: nothing is added
  float* sums;          ///< partial sums of tokens, for kCombineReceive in steps
  uint64_t part_bytes;
  uint32_t weighs;   ///< nonzero: results are multiplied by their weights
  uint32_t exact;    ///< nonzero: each result is sent separately, and `step` is its index among the token's experts
  uint32_t step;     ///< 0 in packets, and 0 without `exact`
  uint32_t sharers;  ///< blocks that share a token
  uint32_t dtype;    ///< of the caller's results: kF32, kF16 or kBF16
  uint32_t task;     ///< kCombine*
};

/// A combine on this rank alone. Parts are [rank][max_tokens].
struct CombineArgs : PartArgs {
  uint8_t* sent;      ///< kCombineSend: own parts, for each rank
  uint8_t* received;  ///< kCombineReceive: parts from each rank
};

/// A combine by direct access. kCombineSend writes parts into the regions of the ranks of the tokens; kCombineReceive
/// reads the parts from the results of all ranks.
struct CombineDirectArgs : PartArgs {
  uint64_t parts_offset;    ///< kCombineSend: of the received parts in a region, [rank][max_tokens]
  uint64_t results_offset;  ///< kCombineReceive: from a region to results; kCombineSend: kStaged
  ExpertPeers peers;
};

/// A combine in packets. kCombineSend sends the parts to the ranks of the tokens; kCombineReceive waits for the parts.
struct CombinePacketArgs : PartArgs {
  uint32_t own_stays;  ///< nonzero: own parts are not sent, but read from `results`
  uint32_t follows;    ///< kCombineReceive: nonzero: the previous launch is that of the sending kernel
  ExpertPacketArea packets;
};

}  // namespace symmetra::kernels
