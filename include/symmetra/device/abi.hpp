// Plain data that kernels and hosts share. Kernels of the library and kernels of
// its users see the same objects; see kernels/args.hpp for the rest.
#pragma once
#include <cstdint>

namespace symmetra::kernels {

/// Most ranks a group may have.
constexpr uint32_t kMaxWorld = 16;

/// What a waiting kernel was doing; the `op` of Status.
constexpr uint32_t kOpAllReduce = 0;
constexpr uint32_t kOpSignalWait = 1;
constexpr uint32_t kOpSignalBarrier = 2;
constexpr uint32_t kOpAgree = 3;
constexpr uint32_t kOpAllGather = 4;
constexpr uint32_t kOpReduceScatter = 5;
constexpr uint32_t kOpAllToAll = 6;
constexpr uint32_t kOpBroadcast = 7;
constexpr uint32_t kOpReduce = 8;
constexpr uint32_t kOpGather = 9;
constexpr uint32_t kOpScatter = 10;
constexpr uint32_t kOpSendReceive = 11;
constexpr uint32_t kOpCounts = 12;

/// Values of Status::code.
constexpr uint32_t kStatusOk = 0;
constexpr uint32_t kStatusTimeout = 1;   ///< a wait passed its deadline
constexpr uint32_t kStatusAborted = 2;   ///< a wait saw the abort word
constexpr uint32_t kStatusMismatch = 3;  ///< a peer's call differs from ours

/// Why a kernel gave up, one a group, in host memory the device addresses.
/// The host writes `abort`; the first wait that gives up writes the rest, `code` last.
struct Status {
  uint32_t abort;     ///< nonzero: every wait of the group gives up
  uint32_t code;      ///< kStatus*
  uint32_t op;        ///< kOp*
  uint32_t peer;      ///< the rank that was waited for
  uint64_t sequence;  ///< collectives of the group finished on this device before
  uint32_t epoch;     ///< the epoch that was waited for
  uint32_t reserved;
  uint64_t timeout_ns;  ///< how long the wait was to last at most
  uint64_t theirs[2];   ///< kStatusMismatch: the peer's descriptor
};

/// Where a rank's device is; in its arena, so peers can read it when it has died.
struct Progress {
  uint64_t done;    ///< collectives whose block 0 ended; not what ranks only tell each other, nor signals
  uint32_t failed;  ///< nonzero once a wait gave up: all others give up too
  uint32_t looked;  ///< when a wait last looked at the host's abort word, in 1024 ns, modulo 2^32
};

/// How a kernel waits: never for ever.
struct Wait {
  Progress* progress;   ///< own arena
  Status* status;       ///< host memory
  uint64_t timeout_ns;  ///< a wait gives up after this long
};

/// The same object in every rank's memory, as this rank addresses it.
struct PeerTable {
  void* address[kMaxWorld];
};

}  // namespace symmetra::kernels

/// What a user's own kernel may call.
namespace symmetra::device {

using kernels::kMaxWorld;
using kernels::PeerTable;
using kernels::Progress;
using kernels::Status;
using kernels::Wait;

/// A signal pad as a kernel of this rank addresses it. A pad is channels x kMaxWorld
/// words, [channel][source]; the counters are laid out alike.
struct SignalPad {
  uint32_t* pads[kMaxWorld];  ///< the pad of every rank
  uint32_t* sent;             ///< own: signals put so far, [channel][target]
  uint32_t* awaited;          ///< own: signals waited for so far, [channel][source]
  Wait wait;
  uint32_t rank;
  uint32_t world;
};

static_assert(sizeof(SignalPad) == 176, "one layout for host and device");

}  // namespace symmetra::device
