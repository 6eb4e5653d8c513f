// Plain data that the host, kernels of the library and user kernels share. kernels/args.hpp defines the rest.
#pragma once
#include <cstdint>

namespace symmetra::kernels {

/// Most ranks a group may have.
constexpr uint32_t kMaxWorld = 16;

/// Operations of waiting kernels: the `op` of Status. The numbers of all other operations are defined by the host.
constexpr uint32_t kOpAllReduce = 0;
constexpr uint32_t kOpSignalWait = 1;
constexpr uint32_t kOpSignalBarrier = 2;
constexpr uint32_t kOpAgree = 3;
constexpr uint32_t kOpCounts = 12;
constexpr uint32_t kOpAllReduceNorm = 15;
constexpr uint32_t kOpDispatch = 18;
constexpr uint32_t kOpCombine = 19;
constexpr uint32_t kOpPairs = 20;
constexpr uint32_t kOpHeap = 21;

/// Values of Status::code.
constexpr uint32_t kStatusOk = 0;
constexpr uint32_t kStatusTimeout = 1;   ///< a wait passed its deadline
constexpr uint32_t kStatusAborted = 2;   ///< a wait saw the abort word
constexpr uint32_t kStatusMismatch = 3;  ///< a peer's call differs from this rank's
constexpr uint32_t kStatusRouting = 4;   ///< a token of Status::peer has an invalid expert id
constexpr uint32_t kStatusCapacity = 5;  ///< Status::peer would receive more rows than its capacity
constexpr uint32_t kStatusBounds = 6;    ///< a user kernel would access memory outside the heap of Status::peer

/// Value of Status::theirs[1] with kStatusBounds if theirs[0] is the invalid channel of a signal. It is no count of
/// bytes.
constexpr uint64_t kNoChannel = ~uint64_t{0};

/// Set in Status::theirs[1] with kStatusCapacity if the count on the device of Status::peer exceeds the number of
/// tokens with ids.
constexpr uint64_t kTokensAsked = uint64_t{1} << 63;

/// Why a kernel gave up, and the wait in progress: one per group, in host memory that the device addresses. The host writes
/// the words of the first packet but `code`. The first wait that gives up writes the fields from `op` to `theirs`, and `code`
/// last. Every line is a packet, written as a whole.
struct alignas(16) Status {
  uint32_t abort;     ///< nonzero: every wait of the group gives up
  uint32_t code;      ///< kStatus*
  uint32_t hold;      ///< nonzero: the kernel that gave up does not end
  uint32_t reserved;  ///< for the host

  uint32_t op;     ///< kOp*
  uint32_t peer;   ///< the rank that was waited for
  uint32_t epoch;  ///< the epoch that was waited for
  uint32_t unused;

  uint64_t sequence;    ///< collectives of the group that this device had finished before
  uint64_t timeout_ns;  ///< the deadline of the wait

  /// kStatusMismatch: the peer's descriptor, or for messages the bytes sent and expected; kStatusRouting: token and
  /// number of experts << 32, expert; kStatusCapacity: rows or tokens, capacity; kStatusBounds: bytes from the start of
  /// the heap, bytes accessed.
  uint64_t theirs[2];

  /// A wait whose first polls failed, written anew every 64 us: its operation | its peer << 8 | the low 32 bits of
  /// Progress::done << 32. The packet keeps its values after the wait.
  uint64_t waiting;
  uint64_t waited_ns;  ///< how long that wait has lasted
};

/// The times of a call that has ended, in the control page. Two packets, each written as a whole.
struct alignas(16) TimeRecord {
  uint64_t begin_ns;  ///< when block 0 of the call's first kernel began, by the device's clock
  uint64_t number;    ///< one more than the number of records of the rank before this one; 0: no record
  uint64_t end_ns;    ///< when block 0 of the call's last kernel ended
  uint64_t place;     ///< label << 48 | the low 16 bits of `number` << 32 | the low 32 bits of Progress::done after the call
};

/// Entries of the ring of records in the control page.
constexpr uint32_t kTimeRecords = 4096;

/// The times of the call in progress and of the last call of a rank's device, which the next call writes as a record: a store
/// to host memory at the end of a kernel would delay that end.
struct alignas(16) Times {
  uint64_t records;   ///< the address of kTimeRecords entries; 0: calls are not timed
  uint64_t recorded;  ///< the number of records so far
  uint64_t begin_ns;  ///< of the call
  uint64_t label;     ///< of the call
  uint64_t end_ns;    ///< of the call; 0: the call has not ended
  uint64_t reserved;
};

/// Progress of a rank's device. It lies in the arena, so peers can read it after the rank has died.
struct alignas(16) Progress {
  uint64_t done;    ///< collectives whose block 0 ended; not comparisons of calls or counts, nor signals
  uint32_t failed;  ///< nonzero once a wait gave up: all other waits then give up too
  uint32_t looked;  ///< when a wait last read the host's abort word, in 1024 ns, modulo 2^32
  Times times;
};

/// The bits of Wait::timeout_ns that are a time where calls can be timed: 78 hours. The others are the label of the call.
constexpr uint32_t kTimeoutBits = 48;

/// Parameters of a kernel's waits. Every wait is bounded.
struct Wait {
  Progress* progress;   ///< in this rank's arena
  Status* status;       ///< host memory
  uint64_t timeout_ns;  ///< a wait gives up after this long; with the label of the call from bit kTimeoutBits on
};

/// The addresses of one object on all ranks, as this rank addresses them.
struct PeerTable {
  void* address[kMaxWorld];
};

/// The memory at one offset of every rank's arena, for multicast accesses only. An ordinary load or store through the
/// address is undefined: on the host device it faults.
struct Multicast {
  void* address;           ///< of the arenas, for the instructions of GPUs
  const PeerTable* table;  ///< the arenas, for the host device; device memory
  uint64_t offset_bytes;   ///< from the arenas to the memory
  uint32_t world;
  uint32_t reserved;
};

static_assert(sizeof(Multicast) == 32, "one layout for host and device");

}  // namespace symmetra::kernels

/// Functions and types for user kernels.
namespace symmetra::device {

/// The argument of device::Multicast of symmetra/device/multicast.cuh.
using MulticastData = kernels::Multicast;
using kernels::kMaxWorld;
using kernels::PeerTable;
using kernels::Progress;
using kernels::Status;
using kernels::Wait;

/// A signal pad as a kernel of this rank addresses it. A pad is channels x world words, [channel][source]; the counters
/// have an equal layout.
struct SignalPad {
  uint32_t* pads[kMaxWorld];  ///< the pad of every rank
  uint32_t* sent;             ///< own: signals put so far, [channel][target]
  uint32_t* awaited;          ///< own: signals waited for so far, [channel][source]
  Wait wait;
  uint32_t rank;
  uint32_t world;
};

static_assert(sizeof(SignalPad) == 176, "one layout for host and device");

/// The heap of a group as a kernel of this rank addresses it: the argument of the functions of
/// symmetra/device/heap.cuh.
struct Heap {
  uint8_t* base[kMaxWorld];  ///< the heap of every rank
  uint64_t bytes;            ///< of each heap
  SignalPad signals;         ///< a pad for kernels only
  uint32_t channels;         ///< of that pad
  uint32_t reserved;
};

static_assert(sizeof(Heap) == 320, "one layout for host and device");

}  // namespace symmetra::device
