// The argument block of the expert kernels: a part of args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

struct BlockState;

/// The tasks of the expert kernels.
constexpr uint32_t kExpertHead = 0;      ///< writes the expert replicas of this rank's tokens into the own routing header
constexpr uint32_t kExpertTally = 1;     ///< counts the pairs that kExpertHead wrote, and validates them
constexpr uint32_t kExpertRows = 2;      ///< stages this rank's rows in their wire format
constexpr uint32_t kExpertCount = 3;     ///< validates the routing headers of all ranks, and counts rows
constexpr uint32_t kExpertPlace = 4;     ///< computes the place of every received row and of every own row
constexpr uint32_t kExpertCopy = 5;      ///< copies received rows to their places
constexpr uint32_t kExpertBeside = 6;    ///< kExpertCopy without the rows: writes the metadata of rows that senders
                                         ///< have placed
constexpr uint32_t kExpertGive = 7;      ///< computes this rank's part of every token from this rank's results
constexpr uint32_t kExpertTake = 8;      ///< sums the parts of this rank's tokens
constexpr uint32_t kExpertPush = 9;      ///< writes this rank's rows to the ranks of their experts
constexpr uint32_t kExpertDeliver = 10;  ///< kExpertGive that writes the parts into the regions of the ranks of the tokens
constexpr uint32_t kExpertPull = 11;     ///< kExpertTake that reads the parts from the results of all ranks
constexpr uint32_t kExpertSend = 12;     ///< sends routing headers and rows of this rank's tokens to their ranks, in packets
constexpr uint32_t kExpertReceive = 13;  ///< waits for routing headers and rows, and writes rows to their places
constexpr uint32_t kExpertReturn = 14;   ///< kExpertGive that sends the parts to the ranks of the tokens, in packets
constexpr uint32_t kExpertSum = 15;      ///< kExpertTake that waits for the parts
constexpr uint32_t kExpertKernels = 16;

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
constexpr uint32_t kMostCopies = 65534;
/// The largest number of experts whose table words a block of kExpertSend stages in block-shared memory.
constexpr uint32_t kMostStagedExperts = 1024;
/// Words of block-shared memory: two for each rank, and four for each expert of a token.
constexpr uint32_t kExpertWords = 2 * kMaxWorld + 4 * kMostTopK;

/// Most threads of a block of kExpertReceive, kExpertGive, kExpertDeliver, kExpertPull, kExpertReturn and kExpertSum.
/// The limit leaves each thread enough registers for data that it prefetches.
constexpr uint32_t kMostAheadThreads = 512;

/// Most blocks of an expert kernel that send start flags to other ranks.
constexpr uint32_t kExpertGreeters = 8;
/// Layout of the barrier area of a region: start flags of all ranks, one word for each flag block; then the verdicts of
/// the own flag blocks, one ExpertHead each; then the end flags of the blocks of each rank, one word each.
constexpr uint32_t kExpertGreetingBytes = 512;
constexpr uint32_t kExpertVerdictBytes = 384;

/// No token, no row, no place.
constexpr uint32_t kNone = 0xFFFFFFFFu;
/// The offset of an operand that peers cannot address: its rows go through regions.
constexpr uint64_t kStaged = 0xFFFFFFFFFFFFFFFFu;

/// The routing header of a rank. It is followed by a u32 count of pairs for each expert replica; a u32 count of tokens
/// for each rank; the u16 expert replica of each pair, where 0xFFFF means none and 0xFFFE an invalid expert id; and the
/// f32 weight of each pair.
struct ExpertHead {
  uint32_t tokens;     ///< tokens that take part; 0 if this rank found an error
  uint32_t claimed;    ///< tokens that the count in device memory asks for
  uint32_t room;       ///< tokens that the caller has rows for
  uint32_t bad_token;  ///< the first token with an invalid expert id; kNone: all ids are valid
  int64_t bad_expert;  ///< that expert
  uint32_t wrong;      ///< nonzero: this rank found an error, so no rank assigns places to rows
  uint32_t reserved;
};

/// Outputs for the metadata of received rows; null: not requested.
struct ExpertOutputs {
  void* scales;
  uint32_t* counts;     ///< rows of each local expert
  uint32_t* offsets;    ///< first row of each local expert, and the end of the last expert's rows
  int32_t* ids;         ///< local experts: by rank top_k a row, -1 for none; else one a row
  float* weights;       ///< same count and order as ids
  uint32_t* sources;    ///< rank and token of each row
  uint32_t* index;      ///< by rank: row numbers, in the order of experts
  uint64_t scale_rows;  ///< scales in columns: rows in a column
  uint32_t columns;     ///< nonzero: scales in columns
  uint32_t reserved;
};

/// One step of a dispatch or a combine, on this rank alone. Staged rows are [rank][max_tokens], of row_bytes each. The
/// fields that most kernels use come first, because constant memory is cold when a kernel starts: see AllReduceArgs.
struct ExpertArgs {
  Wait wait;
  BlockState* calls;  ///< own: of the barrier, followed by two words for Turns; or, with packets, of this kernel
  uint32_t rank;
  uint32_t world;
  uint32_t tokens;  ///< of the caller
  uint32_t top_k;
  uint64_t buffer_bytes;       ///< with packets: bytes from one buffer to the next
  uint64_t travelling_offset;  ///< of `travelling` in a region, or of the packets of rows or parts of the first buffer
  uint64_t tellings_offset;    ///< of the start flags; with packets: of the routing headers of the first buffer
  uint64_t row_bytes;          ///< of a staged row
  uint32_t buffers;            ///< with packets: the number of buffers; a divisor of kEpochModulus
  uint32_t telling_packets;    ///< with packets: capacity for the routing header of a rank
  uint16_t rows_at_once;       ///< kExpertReceive: tokens that a block receives together
  uint16_t parts;              ///< kExpertPull, kExpertReturn, kExpertSum: blocks that share a token; else 1
  uint16_t follows;            ///< kExpertReceive, kExpertSum: nonzero: the previous launch is that of the sending
                               ///< kernel; kExpertPush by source: nonzero: another dispatch of the same routing, whose
                               ///< pairs are in the own routing header
  uint16_t holds;              ///< kExpertReceive: nonzero: block-shared memory holds the replicas of all routing
                               ///< headers; kExpertReturn with one row for each token: nonzero: own parts stay in
                               ///< place, and `rows` is their address for kExpertSum
  uint32_t payload_bytes;      ///< of a row, without scales
  uint32_t hidden;
  uint32_t layout;          ///< kRows*
  uint32_t id_bytes;        ///< 4 or 8
  const uint32_t* table;    ///< device memory: first replica of each rank; a word for each expert; choices: see ExpertTable
  const void* ids;          ///< kExpertHead: of each pair of this rank
  const float* weights;     ///< of each pair of this rank; null: 1
  const void* rows;         ///< kExpertRows, kExpertPush: the caller's rows; kExpertGive, kExpertDeliver: the caller's
                            ///< results
  const float* row_scales;  ///< kExpertRows, kExpertPush with kWireGivenF8
  uint8_t* travelling;      ///< own rows staged by kExpertRows; all received rows; parts that are sent or received
  void* output;             ///< kExpertCopy: received rows; kExpertTake, kExpertPull: one row for each token
  const void* add;          ///< kExpertTake, kExpertPull: added to the sums; null: nothing is added
  uint32_t max_tokens;
  uint32_t local;               ///< expert replicas on this rank
  uint32_t first_copy;          ///< the first expert replica of this rank
  uint32_t op;                  ///< kOp*, for the status
  uint32_t wire;                ///< kWire*
  uint32_t weighs;              ///< kExpertGive, kExpertTake: nonzero: results are multiplied by their weights
  uint32_t dtype;               ///< of the caller's rows and results: kF32, kF16 or kBF16
  uint32_t scales;              ///< kCodeScales*
  uint8_t* regions[kMaxWorld];  ///< of every rank, for kernels that access the memory of peers
  ExpertOutputs into;
  uint64_t capacity;            ///< most rows that a rank may receive; kRowsPadded: capacity of each local expert
  uint64_t scales_offset;       ///< in a staged row
  uint64_t placed_offset;       ///< by rank, from a region to received rows (kExpertPush) or results (kExpertPull); kStaged
  uint64_t placed_scales;       ///< kExpertPush by source: from a region to scales of received rows, in order of rows; kStaged
  uint64_t placed_ids;          ///< kExpertPush by source: from a region to the ids of received rows; kStaged
  uint64_t placed_weights;      ///< kExpertPush by source: from a region to the weights of received rows; kStaged
  uint64_t barrier_offset;      ///< kExpertPush, kExpertDeliver, kExpertPull: of the start and end flags in a region
  uint32_t* state;              ///< own: failed, reserved, counts of local experts, offsets of local experts and the end
  const uint32_t* token_count;  ///< own device memory; null: `tokens`
  uint8_t* heads;               ///< routing headers of all ranks, head_bytes each
  uint32_t* places;             ///< own: places of each pair and each token of all ranks here, and of each own token on
                                ///< every rank
  float* sums;                  ///< kExpertTake in steps: partial sums of tokens
  uint64_t head_bytes;
  uint64_t copies_offset;   ///< in a routing header
  uint64_t weights_offset;  ///< in a routing header
  uint32_t task;            ///< kExpert*
  uint32_t align;           ///< kRowsByExpert: the first row of an expert is a multiple of this
  uint32_t experts;         ///< logical experts
  uint32_t copies;          ///< expert replicas on all ranks
  uint32_t exact;           ///< nonzero: each result is sent separately, and `step` is its index among the token's experts
  uint32_t step;
};

}  // namespace symmetra::kernels
