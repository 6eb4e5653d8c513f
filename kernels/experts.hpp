// The argument block of kernels of experts: a part of args.hpp.
#pragma once
#include <cstdint>

#include "symmetra/device/abi.hpp"

namespace symmetra::kernels {

struct BlockState;

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
/// Most experts whose words of the table a block of kExpertSend keeps in its own memory.
constexpr uint32_t kMostStagedExperts = 1024;
/// Words of block-shared memory: two for each rank, and four for each of a token's experts.
constexpr uint32_t kExpertWords = 2 * kMaxWorld + 4 * kMostTopK;

/// Most threads of a block of kExpertReceive, kExpertGive, kExpertDeliver, kExpertPull, kExpertReturn and kExpertSum: so few that
/// each has registers for what it loads ahead.
constexpr uint32_t kMostAheadThreads = 512;

/// Blocks of a kernel of experts that greet other ranks.
constexpr uint32_t kExpertGreeters = 8;
/// Greetings of ranks in a region, a word of each greeter; behind them what the own greeters have found wrong, an ExpertHead each; then
/// flags of the blocks of each rank, a word each.
constexpr uint32_t kExpertGreetingBytes = 512;
constexpr uint32_t kExpertVerdictBytes = 384;

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

/// One step of a dispatch or a combine, on this rank alone. Rows that travel are [rank][max_tokens], of row_bytes each. What most kernels
/// use comes first, because constant memory is cold when a kernel starts: see AllReduceArgs.
struct ExpertArgs {
  Wait wait;
  BlockState* calls;  ///< own: of the barrier, with two words behind for Turns; or in packets of this kernel
  uint32_t rank;
  uint32_t world;
  uint32_t tokens;  ///< of the caller
  uint32_t top_k;
  uint64_t buffer_bytes;       ///< in packets: from a buffer to the next
  uint64_t travelling_offset;  ///< of `travelling` in a region, or of the packets of rows or parts of the first buffer
  uint64_t tellings_offset;    ///< in packets: of the packets of heads, or of greetings, of the first buffer
  uint64_t row_bytes;          ///< of a row that travels
  uint32_t buffers;            ///< in packets: how many; a divisor of kEpochModulus
  uint32_t telling_packets;    ///< in packets: room for the head of a rank
  uint16_t rows_at_once;       ///< kExpertReceive: tokens that a block takes at once
  uint16_t parts;              ///< kExpertPull, kExpertReturn, kExpertSum: blocks that share a token; else 1
  uint16_t follows;            ///< kExpertReceive, kExpertSum: nonzero: the launch before is that of the sending kernel; kExpertPush by
                               ///< source: nonzero: another dispatch of a routing, whose pairs the own head has
  uint16_t holds;              ///< kExpertReceive: nonzero: a block's memory has the copies of all heads; kExpertReturn with a row a
                               ///< token: nonzero: own parts stay where they are, and kExpertSum has their address in `rows`
  uint32_t payload_bytes;      ///< of a row, without scales
  uint32_t hidden;
  uint32_t layout;          ///< kRows*
  uint32_t id_bytes;        ///< 4 or 8
  const uint32_t* table;    ///< device memory: first copy of each rank; a word for each expert; choices: see ExpertTable
  const void* ids;          ///< kExpertHead: of each pair of this rank
  const float* weights;     ///< of each pair of this rank; null: 1
  const void* rows;         ///< kExpertRows, kExpertPush: the caller's; kExpertGive, kExpertDeliver: the caller's results
  const float* row_scales;  ///< kExpertRows, kExpertPush with kWireGivenF8
  uint8_t* travelling;      ///< what kExpertRows makes of own rows; all rows that came; parts that go or came
  void* output;             ///< kExpertCopy: received rows; kExpertTake, kExpertPull: a row a token
  const void* add;          ///< kExpertTake, kExpertPull: null: nothing
  uint32_t max_tokens;
  uint32_t local;               ///< copies on this rank
  uint32_t first_copy;          ///< of this rank
  uint32_t op;                  ///< kOp*, for the status
  uint32_t wire;                ///< kWire*
  uint32_t weighs;              ///< kExpertGive, kExpertTake: nonzero: results count by their weights
  uint32_t dtype;               ///< of the caller's rows and results: kF32, kF16 or kBF16
  uint32_t scales;              ///< kCodeScales*
  uint8_t* regions[kMaxWorld];  ///< of every rank, for kernels that write or read there
  ExpertOutputs into;
  uint64_t capacity;            ///< most rows a rank may receive; kRowsPadded: rows of a local expert
  uint64_t scales_offset;       ///< in a row that travels
  uint64_t placed_offset;       ///< by rank, from a region to received rows (kExpertPush) or results (kExpertPull); kStaged
  uint64_t placed_scales;       ///< kExpertPush by source: from a region to scales of received rows, in order of rows; kStaged
  uint64_t placed_ids;          ///< kExpertPush by source: from a region to local experts of received rows; kStaged
  uint64_t placed_weights;      ///< kExpertPush by source: from a region to their weights; kStaged
  uint64_t barrier_offset;      ///< kExpertPush, kExpertDeliver, kExpertPull: of greetings and flags in a region
  uint32_t* state;              ///< own: failed, reserved, counts of local experts, offsets of local experts and behind
  const uint32_t* token_count;  ///< own device memory; null: `tokens`
  uint8_t* heads;               ///< of all ranks, head_bytes each
  uint32_t* places;             ///< own: of each pair and of each token of all ranks here; of each own token on every rank
  float* sums;                  ///< kExpertTake in steps: sums of tokens so far
  uint64_t head_bytes;
  uint64_t copies_offset;   ///< in a head
  uint64_t weights_offset;  ///< in a head
  uint32_t task;            ///< kExpert*
  uint32_t align;           ///< kRowsByExpert: rows of an expert begin at multiples
  uint32_t experts;         ///< logical
  uint32_t copies;          ///< of experts, on all ranks
  uint32_t exact;           ///< nonzero: each result travels, and step says which of a token's
  uint32_t step;
};

}  // namespace symmetra::kernels
