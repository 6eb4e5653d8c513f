// Argument blocks of the kernels: plain data, the one truth for both languages.
// src/kernel/args.rs mirrors this file: sizes are asserted on both sides, offsets on that one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

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
constexpr uint32_t kTwoShotSentinel = 3;      ///< the same with sentinel packets, floating types
constexpr uint32_t kTwoShotZeroCopy = 4;      ///< pull-reduce and push between the operands themselves
constexpr uint32_t kRing = 5;                 ///< round a ring, through queues or into the outputs
constexpr uint32_t kRecursiveDoubling = 6;    ///< exchanges with one partner a step; LL packets
constexpr uint32_t kAllReduceAlgorithms = 7;  ///< how many there are

/// Most blocks of a ring: its channels. Fewer than the multiprocessors of an H100, so all run at
/// once; channels do not wait for each other, so where there are fewer the rest comes later.
constexpr uint32_t kRingChannels = 128;
/// Slots of a channel's queue. Two let a rank fill one while the next empties the other.
constexpr uint32_t kRingSlots = 2;
/// The region of a ring: flags of the barrier at its entry, two counts a channel, queues.
constexpr uint32_t kRingCountsOffset = kMaxBlocks * kMaxWorld * 4;
constexpr uint32_t kRingCountBytes = 64;
constexpr uint32_t kRingQueuesOffset = kRingCountsOffset + 2 * kRingChannels * kRingCountBytes;

/// Per-block protocol state, own device memory, kMaxBlocks entries a region. All
/// entries advance together, one step a call, whatever the grid: block b of a grid
/// of g reads entry b and writes entries b, b + g, b + 2g...
struct BlockState {
  uint32_t epoch;     ///< calls made in this region, modulo kEpochModulus
  uint32_t previous;  ///< sentinels: packets per source of the call before; ring: what channels have passed on
};
/// Divisible by 2 and 3, so that buffers rotate evenly across the wrap.
constexpr uint32_t kEpochModulus = 0xFFFFFFFCu;

/// One all-reduce. What a kernel needs first comes first: constant memory is cold when
/// a kernel starts, and a line of it (64 bytes, of which a launch takes 16) is a few percent
/// of a small message. Up to wait.progress all is on the first line.
struct AllReduceArgs {
  const void* input;
  void* output;
  uint64_t count;       ///< elements
  BlockState* state;    ///< own, of this region
  uint32_t lanes_log2;  ///< packets of one source a block handles at once
  uint32_t rank;
  Wait wait;
  uint64_t slot_packets;  ///< room for one source in one buffer of the region
  uint32_t world;
  uint32_t dtype;
  uint32_t algorithm;
  uint32_t reduction;
  uint8_t* peers[kMaxWorld];      ///< scratch region of this protocol in every rank; the own at [rank]
  const PeerTable* inputs;        ///< kTwoShotZeroCopy: device memory
  const PeerTable* outputs;       ///< kTwoShotZeroCopy: device memory; kRing: the same, or null
  uint64_t inputs_offset_bytes;   ///< from every address of `inputs` to the operand
  uint64_t outputs_offset_bytes;  ///< from every address of `outputs` to the operand
};

/// How an exchange is done.
constexpr uint32_t kExchangePackets = 0;     ///< LL packets through scratch; any memory
constexpr uint32_t kExchangePush = 1;        ///< each rank writes into the outputs of the others
constexpr uint32_t kExchangeRelay = 2;       ///< each rank reads a share of one rank's and writes it to all others
constexpr uint32_t kReducePackets = 3;       ///< as kExchangePackets; what a rank gets from all it reduces
constexpr uint32_t kReducePull = 4;          ///< each rank reads the inputs of all and reduces them
constexpr uint32_t kReduceLocal = 5;         ///< a rank reduces what was brought to it, of each rank `from` says
constexpr uint32_t kRelayPackets = 6;        ///< as kExchangeRelay; LL packets through scratch, any memory
constexpr uint32_t kExchangeAlgorithms = 7;  ///< how many there are

/// Packets of a line of memory: shares of what kRelayPackets moves begin at one.
constexpr uint32_t kRelayLine = 8;

/// What ranks that know only their own counts tell each other before the exchange.
struct Learned {
  uint64_t largest_bytes;            ///< most that any rank sends any other
  uint64_t direct;                   ///< nonzero: between the operands, for peers can address every rank's output
  uint64_t theirs_bytes[kMaxWorld];  ///< from the addresses of the table to where this rank's part goes
};

/// What stands in Status::theirs[1] where the exchange must be direct and peers cannot address the output of
/// Status::peer. No count of bytes.
constexpr uint64_t kNotReached = ~uint64_t{0};

/// The telling. LL packets, four a rank.
struct CountsArgs {
  uint8_t* peers[kMaxWorld];  ///< scratch region: [epoch parity][source][4] packets
  BlockState* state;          ///< own; entry 0 only
  Learned* learned;           ///< own device memory
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint64_t send_bytes[kMaxWorld];     ///< to each rank
  uint64_t receive_bytes[kMaxWorld];  ///< expected from each rank
  uint64_t offset_bytes[kMaxWorld];   ///< from the address of this rank's output that peers know to where theirs goes
  uint64_t largest_bytes;             ///< most that this rank sends or expects
  uint64_t direct;                    ///< nonzero: peers can address this rank's output
  uint64_t direct_from_bytes;         ///< the exchange is direct from this largest_bytes on, 0: or not at all; the same on every rank
};

/// One exchange: every rank gives every other a strip of bytes. Strips of more than one row are
/// parts of tensors, all of the same size.
struct ExchangeArgs {
  BlockState* state;  ///< own, of this region
  Wait wait;
  uint32_t rank;
  uint32_t world;
  uint32_t lanes_log2;             ///< packets of one source a block handles at once
  uint32_t algorithm;              ///< kExchange*
  uint32_t op;                     ///< kOp*, for whoever asks what this rank waits for
  uint32_t root;                   ///< kExchangeRelay, kRelayPackets: whose bytes they are; kReducePull: who gets the result
  uint32_t dtype;                  ///< of what is reduced
  uint32_t reduction;              ///< kSum...
  uint64_t slot_packets;           ///< through scratch: room for one source in one buffer of the region
  uint64_t largest_bytes;          ///< most that any rank sends any other
  const Learned* learned;          ///< own device memory; null where ranks know each other's counts
  uint8_t* peers[kMaxWorld];       ///< region of every rank: scratch of an LL protocol, or barrier flags
  const uint8_t* from[kMaxWorld];  ///< own: what goes to each rank
  uint8_t* into[kMaxWorld];        ///< own: where what comes from each rank goes
  uint64_t send_bytes[kMaxWorld];
  uint64_t receive_bytes[kMaxWorld];
  uint64_t row_bytes;                ///< 0: every strip is one row
  uint64_t from_pitch_bytes;         ///< from one row of `from` to the next
  uint64_t into_pitch_bytes;         ///< from one row of `into` to the next
  const PeerTable* table;            ///< direct: device memory; the operand that peers access
  uint64_t theirs_bytes[kMaxWorld];  ///< direct: from every address of the table to what this rank accesses there
};

/// What a signal kernel does.
constexpr uint32_t kSignalPut = 0;
constexpr uint32_t kSignalWait = 1;
constexpr uint32_t kSignalBarrier = 2;

/// One operation on a signal pad. A pad is channels x kMaxWorld words, [channel][source].
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
  uint32_t op;      ///< kSignalBarrier: kOp*, for whoever asks what this rank waits for
};

/// All ranks compare what they are about to call. LL packets, two a rank.
struct AgreeArgs {
  uint8_t* peers[kMaxWorld];  ///< scratch region: [epoch parity][source][2] packets
  BlockState* state;          ///< own; entry 0 only
  uint64_t ours[2];           ///< descriptor: bytes, then packed op | dtype << 8 | algorithm << 16 | reduction << 24
  Wait wait;
  uint32_t rank;
  uint32_t world;
};

/// Plain stores to peers, or nothing: what the hardware gives. As large as AllReduceArgs, so that
/// a launch of it costs what one of those does.
struct ProbeArgs {
  const void* from;     ///< own; 16-byte aligned
  void* to[kMaxWorld];  ///< the first `targets` of them receive every packet
  uint64_t packets;     ///< of 16 bytes
  uint32_t targets;
  uint32_t reserved[25];
};

/// Launch shape, a pure function of world, bytes, type and algorithm.
struct Geometry {
  uint32_t blocks;
  uint32_t threads;       ///< a block
  uint32_t shared_bytes;  ///< a block
  uint32_t programmatic;  ///< nonzero: may start while its predecessor drains (dependent launch)
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
static_assert(sizeof(Learned) == 144, "mirrored in src/kernel/args.rs");
static_assert(sizeof(Geometry) == 16, "mirrored in src/kernel/args.rs");

}  // namespace symmetra::kernels
