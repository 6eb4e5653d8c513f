//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test source bindings` after changing the header.
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, unreachable_pub, unsafe_code, unused, clippy::all)]

#[doc = " Most ranks a group may have."]
pub const kMaxWorld: u32 = 16;
#[doc = " The operation of a waiting kernel; the `op` of Status."]
pub const kOpAllReduce: u32 = 0;
pub const kOpSignalWait: u32 = 1;
pub const kOpSignalBarrier: u32 = 2;
pub const kOpAgree: u32 = 3;
pub const kOpAllGather: u32 = 4;
pub const kOpReduceScatter: u32 = 5;
pub const kOpAllToAll: u32 = 6;
pub const kOpBroadcast: u32 = 7;
pub const kOpReduce: u32 = 8;
pub const kOpGather: u32 = 9;
pub const kOpScatter: u32 = 10;
pub const kOpSendReceive: u32 = 11;
pub const kOpCounts: u32 = 12;
#[doc = " Values of Status::code."]
pub const kStatusOk: u32 = 0;
#[doc = "< a wait passed its deadline"]
pub const kStatusTimeout: u32 = 1;
#[doc = "< a wait saw the abort word"]
pub const kStatusAborted: u32 = 2;
#[doc = "< a peer's call differs from this rank's"]
pub const kStatusMismatch: u32 = 3;
#[doc = " Why a kernel gave up: one per group, in host memory that the device addresses. The host writes `abort`. The first\n wait that gives up writes the other fields, `code` last."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Status {
    #[doc = "< nonzero: every wait of the group gives up"]
    pub abort: u32,
    #[doc = "< kStatus*"]
    pub code: u32,
    #[doc = "< kOp*"]
    pub op: u32,
    #[doc = "< the rank that was waited for"]
    pub peer: u32,
    #[doc = "< collectives of the group that this device had finished before"]
    pub sequence: u64,
    #[doc = "< the epoch that was waited for"]
    pub epoch: u32,
    pub reserved: u32,
    #[doc = "< the deadline of the wait"]
    pub timeout_ns: u64,
    #[doc = "< kStatusMismatch: the peer's descriptor"]
    pub theirs: [u64; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Status"][::std::mem::size_of::<Status>() - 56usize];
    ["Alignment of Status"][::std::mem::align_of::<Status>() - 8usize];
    ["Offset of field: Status::abort"][::std::mem::offset_of!(Status, abort) - 0usize];
    ["Offset of field: Status::code"][::std::mem::offset_of!(Status, code) - 4usize];
    ["Offset of field: Status::op"][::std::mem::offset_of!(Status, op) - 8usize];
    ["Offset of field: Status::peer"][::std::mem::offset_of!(Status, peer) - 12usize];
    ["Offset of field: Status::sequence"][::std::mem::offset_of!(Status, sequence) - 16usize];
    ["Offset of field: Status::epoch"][::std::mem::offset_of!(Status, epoch) - 24usize];
    ["Offset of field: Status::reserved"][::std::mem::offset_of!(Status, reserved) - 28usize];
    ["Offset of field: Status::timeout_ns"][::std::mem::offset_of!(Status, timeout_ns) - 32usize];
    ["Offset of field: Status::theirs"][::std::mem::offset_of!(Status, theirs) - 40usize];
};
#[doc = " Progress of a rank's device. It lies in the arena, so peers can read it after the rank has died."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Progress {
    #[doc = "< collectives whose block 0 ended; not comparisons of calls or counts, nor signals"]
    pub done: u64,
    #[doc = "< nonzero once a wait gave up: all others then give up too"]
    pub failed: u32,
    #[doc = "< when a wait last read the host's abort word, in 1024 ns, modulo 2^32"]
    pub looked: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Progress"][::std::mem::size_of::<Progress>() - 16usize];
    ["Alignment of Progress"][::std::mem::align_of::<Progress>() - 8usize];
    ["Offset of field: Progress::done"][::std::mem::offset_of!(Progress, done) - 0usize];
    ["Offset of field: Progress::failed"][::std::mem::offset_of!(Progress, failed) - 8usize];
    ["Offset of field: Progress::looked"][::std::mem::offset_of!(Progress, looked) - 12usize];
};
#[doc = " Parameters of a kernel's waits. Every wait is bounded."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Wait {
    #[doc = "< in this rank's arena"]
    pub progress: *mut Progress,
    #[doc = "< host memory"]
    pub status: *mut Status,
    #[doc = "< a wait gives up after this long"]
    pub timeout_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Wait"][::std::mem::size_of::<Wait>() - 24usize];
    ["Alignment of Wait"][::std::mem::align_of::<Wait>() - 8usize];
    ["Offset of field: Wait::progress"][::std::mem::offset_of!(Wait, progress) - 0usize];
    ["Offset of field: Wait::status"][::std::mem::offset_of!(Wait, status) - 8usize];
    ["Offset of field: Wait::timeout_ns"][::std::mem::offset_of!(Wait, timeout_ns) - 16usize];
};
#[doc = " The addresses of one object on all ranks, as this rank addresses them."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PeerTable {
    pub address: [*mut core::ffi::c_void; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PeerTable"][::std::mem::size_of::<PeerTable>() - 128usize];
    ["Alignment of PeerTable"][::std::mem::align_of::<PeerTable>() - 8usize];
    ["Offset of field: PeerTable::address"][::std::mem::offset_of!(PeerTable, address) - 0usize];
};
#[doc = " Most blocks a launch may have; every per-block table has this many entries."]
pub const kMaxBlocks: u32 = 256;
#[doc = " Element types. The numbers cross the language boundary."]
pub const kF32: u32 = 0;
pub const kF64: u32 = 1;
pub const kF16: u32 = 2;
pub const kBF16: u32 = 3;
pub const kI32: u32 = 4;
pub const kI64: u32 = 5;
pub const kI8: u32 = 6;
pub const kU8: u32 = 7;
pub const kU32: u32 = 8;
pub const kU64: u32 = 9;
#[doc = " Reductions. The numbers cross the language boundary."]
pub const kSum: u32 = 0;
pub const kProduct: u32 = 1;
pub const kMin: u32 = 2;
pub const kMax: u32 = 3;
pub const kAverage: u32 = 4;
#[doc = "< one hop; 8 data bytes and two epochs a packet"]
pub const kOneShotLL: u32 = 0;
#[doc = "< one hop; 16 data bytes a packet, floating types"]
pub const kOneShotSentinel: u32 = 1;
#[doc = "< reduce-scatter and all-gather, both pushed, LL packets"]
pub const kTwoShotLL: u32 = 2;
#[doc = "< reduce-scatter and all-gather, both pushed, sentinel packets, floating types"]
pub const kTwoShotSentinel: u32 = 3;
#[doc = "< zero-copy: reads and reduces inputs, writes outputs"]
pub const kTwoShotZeroCopy: u32 = 4;
#[doc = "< round a ring, through queues or into the outputs"]
pub const kRing: u32 = 5;
#[doc = "< exchanges with one partner a step; LL packets"]
pub const kRecursiveDoubling: u32 = 6;
#[doc = "< how many there are"]
pub const kAllReduceAlgorithms: u32 = 7;
#[doc = " Most blocks of a ring: its channels. Fewer than the multiprocessors of an H100, so all run at once. Channels do not\n wait for each other, so on a smaller device the rest run later."]
pub const kRingChannels: u32 = 128;
#[doc = " Slots of a channel's queue. With two, a rank fills one while the next rank empties the other."]
pub const kRingSlots: u32 = 2;
#[doc = " The region of a ring: flags of the entry barrier, two counters per channel, queues."]
pub const kRingCountsOffset: u32 = 16384;
pub const kRingCountBytes: u32 = 64;
pub const kRingQueuesOffset: u32 = 32768;
#[doc = " Per-block protocol state in own device memory, kMaxBlocks entries per region. All entries advance together, one step\n per call, whatever the grid: block b of a grid of g blocks reads entry b and writes entries b, b + g, b + 2g..."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct BlockState {
    #[doc = "< calls made in this region, modulo kEpochModulus"]
    pub epoch: u32,
    #[doc = "< sentinels: packets per source of the previous call; ring: counters of its channels"]
    pub previous: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of BlockState"][::std::mem::size_of::<BlockState>() - 8usize];
    ["Alignment of BlockState"][::std::mem::align_of::<BlockState>() - 4usize];
    ["Offset of field: BlockState::epoch"][::std::mem::offset_of!(BlockState, epoch) - 0usize];
    ["Offset of field: BlockState::previous"][::std::mem::offset_of!(BlockState, previous) - 4usize];
};
#[doc = " Divisible by 2 and 3, so that buffers rotate evenly across the wrap."]
pub const kEpochModulus: u32 = 4294967292;
#[doc = " One all-reduce. Fields that a kernel needs first come first: constant memory is cold when a kernel starts, and one\n line of it (64 bytes, of which a launch takes 16) costs a few percent of a small message. Everything up to\n wait.progress is on the first line."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AllReduceArgs {
    pub input: *const core::ffi::c_void,
    pub output: *mut core::ffi::c_void,
    #[doc = "< elements"]
    pub count: u64,
    #[doc = "< own, of this region"]
    pub state: *mut BlockState,
    #[doc = "< packets of one source that a block handles at once"]
    pub lanes_log2: u32,
    pub rank: u32,
    pub wait: Wait,
    #[doc = "< room for one source in one buffer of the region"]
    pub slot_packets: u64,
    pub world: u32,
    pub dtype: u32,
    pub algorithm: u32,
    pub reduction: u32,
    #[doc = "< scratch region of this protocol on every rank; this rank's at [rank]"]
    pub peers: [*mut u8; 16usize],
    #[doc = "< kTwoShotZeroCopy: device memory"]
    pub inputs: *const PeerTable,
    #[doc = "< kTwoShotZeroCopy, or kRing with direct output: device memory; else null"]
    pub outputs: *const PeerTable,
    #[doc = "< from every address of `inputs` to the operand"]
    pub inputs_offset_bytes: u64,
    #[doc = "< from every address of `outputs` to the operand"]
    pub outputs_offset_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AllReduceArgs"][::std::mem::size_of::<AllReduceArgs>() - 248usize];
    ["Alignment of AllReduceArgs"][::std::mem::align_of::<AllReduceArgs>() - 8usize];
    ["Offset of field: AllReduceArgs::input"][::std::mem::offset_of!(AllReduceArgs, input) - 0usize];
    ["Offset of field: AllReduceArgs::output"][::std::mem::offset_of!(AllReduceArgs, output) - 8usize];
    ["Offset of field: AllReduceArgs::count"][::std::mem::offset_of!(AllReduceArgs, count) - 16usize];
    ["Offset of field: AllReduceArgs::state"][::std::mem::offset_of!(AllReduceArgs, state) - 24usize];
    ["Offset of field: AllReduceArgs::lanes_log2"][::std::mem::offset_of!(AllReduceArgs, lanes_log2) - 32usize];
    ["Offset of field: AllReduceArgs::rank"][::std::mem::offset_of!(AllReduceArgs, rank) - 36usize];
    ["Offset of field: AllReduceArgs::wait"][::std::mem::offset_of!(AllReduceArgs, wait) - 40usize];
    ["Offset of field: AllReduceArgs::slot_packets"][::std::mem::offset_of!(AllReduceArgs, slot_packets) - 64usize];
    ["Offset of field: AllReduceArgs::world"][::std::mem::offset_of!(AllReduceArgs, world) - 72usize];
    ["Offset of field: AllReduceArgs::dtype"][::std::mem::offset_of!(AllReduceArgs, dtype) - 76usize];
    ["Offset of field: AllReduceArgs::algorithm"][::std::mem::offset_of!(AllReduceArgs, algorithm) - 80usize];
    ["Offset of field: AllReduceArgs::reduction"][::std::mem::offset_of!(AllReduceArgs, reduction) - 84usize];
    ["Offset of field: AllReduceArgs::peers"][::std::mem::offset_of!(AllReduceArgs, peers) - 88usize];
    ["Offset of field: AllReduceArgs::inputs"][::std::mem::offset_of!(AllReduceArgs, inputs) - 216usize];
    ["Offset of field: AllReduceArgs::outputs"][::std::mem::offset_of!(AllReduceArgs, outputs) - 224usize];
    ["Offset of field: AllReduceArgs::inputs_offset_bytes"]
        [::std::mem::offset_of!(AllReduceArgs, inputs_offset_bytes) - 232usize];
    ["Offset of field: AllReduceArgs::outputs_offset_bytes"]
        [::std::mem::offset_of!(AllReduceArgs, outputs_offset_bytes) - 240usize];
};
#[doc = "< LL packets through scratch; any memory"]
pub const kExchangePackets: u32 = 0;
#[doc = "< each rank writes into the outputs of the others"]
pub const kExchangePush: u32 = 1;
#[doc = "< each rank reads a share of the root's data and writes it to all others"]
pub const kExchangeRelay: u32 = 2;
#[doc = "< LL packets through scratch; a rank reduces what it gets from all"]
pub const kReducePackets: u32 = 3;
#[doc = "< each rank reads all inputs and reduces them"]
pub const kReducePull: u32 = 4;
#[doc = "< a rank reduces parts already copied to it; `from` has one per rank"]
pub const kReduceLocal: u32 = 5;
#[doc = "< kExchangeRelay by LL packets through scratch; any memory"]
pub const kRelayPackets: u32 = 6;
#[doc = "< how many there are"]
pub const kExchangeAlgorithms: u32 = 7;
#[doc = " Packets per line of memory: shares of kRelayPackets start at a line."]
pub const kRelayLine: u32 = 8;
#[doc = " Counts that ranks exchange when each knows only its own."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Learned {
    #[doc = "< most bytes that any rank sends any other"]
    pub largest_bytes: u64,
    #[doc = "< nonzero: zero-copy, because peers can address every rank's output"]
    pub direct: u64,
    #[doc = "< from the table's addresses to the place of this rank's part"]
    pub theirs_bytes: [u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Learned"][::std::mem::size_of::<Learned>() - 144usize];
    ["Alignment of Learned"][::std::mem::align_of::<Learned>() - 8usize];
    ["Offset of field: Learned::largest_bytes"][::std::mem::offset_of!(Learned, largest_bytes) - 0usize];
    ["Offset of field: Learned::direct"][::std::mem::offset_of!(Learned, direct) - 8usize];
    ["Offset of field: Learned::theirs_bytes"][::std::mem::offset_of!(Learned, theirs_bytes) - 16usize];
};
#[doc = " Value of Status::theirs[1] when the exchange must be zero-copy and peers cannot address the output of Status::peer.\n It is no count of bytes."]
pub const kNotReached: u64 = 18446744073709551615;
#[doc = " The exchange of counts. LL packets, four per rank."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CountsArgs {
    #[doc = "< scratch region: [epoch parity][source][4] packets"]
    pub peers: [*mut u8; 16usize],
    #[doc = "< own; entry 0 only"]
    pub state: *mut BlockState,
    #[doc = "< own device memory"]
    pub learned: *mut Learned,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    #[doc = "< to each rank"]
    pub send_bytes: [u64; 16usize],
    #[doc = "< expected from each rank"]
    pub receive_bytes: [u64; 16usize],
    #[doc = "< from this rank's output, as peers know it, to the place of each rank's part"]
    pub offset_bytes: [u64; 16usize],
    #[doc = "< most that this rank sends or expects"]
    pub largest_bytes: u64,
    #[doc = "< nonzero: peers can address this rank's output"]
    pub direct: u64,
    #[doc = "< zero-copy from this largest_bytes on; 0: never through scratch; equal on every rank"]
    pub direct_from_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CountsArgs"][::std::mem::size_of::<CountsArgs>() - 584usize];
    ["Alignment of CountsArgs"][::std::mem::align_of::<CountsArgs>() - 8usize];
    ["Offset of field: CountsArgs::peers"][::std::mem::offset_of!(CountsArgs, peers) - 0usize];
    ["Offset of field: CountsArgs::state"][::std::mem::offset_of!(CountsArgs, state) - 128usize];
    ["Offset of field: CountsArgs::learned"][::std::mem::offset_of!(CountsArgs, learned) - 136usize];
    ["Offset of field: CountsArgs::wait"][::std::mem::offset_of!(CountsArgs, wait) - 144usize];
    ["Offset of field: CountsArgs::rank"][::std::mem::offset_of!(CountsArgs, rank) - 168usize];
    ["Offset of field: CountsArgs::world"][::std::mem::offset_of!(CountsArgs, world) - 172usize];
    ["Offset of field: CountsArgs::send_bytes"][::std::mem::offset_of!(CountsArgs, send_bytes) - 176usize];
    ["Offset of field: CountsArgs::receive_bytes"][::std::mem::offset_of!(CountsArgs, receive_bytes) - 304usize];
    ["Offset of field: CountsArgs::offset_bytes"][::std::mem::offset_of!(CountsArgs, offset_bytes) - 432usize];
    ["Offset of field: CountsArgs::largest_bytes"][::std::mem::offset_of!(CountsArgs, largest_bytes) - 560usize];
    ["Offset of field: CountsArgs::direct"][::std::mem::offset_of!(CountsArgs, direct) - 568usize];
    ["Offset of field: CountsArgs::direct_from_bytes"]
        [::std::mem::offset_of!(CountsArgs, direct_from_bytes) - 576usize];
};
#[doc = " One exchange: every rank sends every other a strip of bytes. Strips of more than one row are parts of tensors, all\n of equal size."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExchangeArgs {
    #[doc = "< own, of this region"]
    pub state: *mut BlockState,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    #[doc = "< packets of one source that a block handles at once"]
    pub lanes_log2: u32,
    #[doc = "< kExchange*"]
    pub algorithm: u32,
    #[doc = "< kOp*, reported when a wait gives up"]
    pub op: u32,
    #[doc = "< kExchangeRelay, kRelayPackets: source rank; kReducePull: target rank"]
    pub root: u32,
    #[doc = "< type of reduced elements"]
    pub dtype: u32,
    #[doc = "< kSum..."]
    pub reduction: u32,
    #[doc = "< through scratch: room for one source in one buffer of the region"]
    pub slot_packets: u64,
    #[doc = "< most bytes that any rank sends any other"]
    pub largest_bytes: u64,
    #[doc = "< own device memory; null where ranks know each other's counts"]
    pub learned: *const Learned,
    #[doc = "< region of every rank: scratch of an LL protocol, or barrier flags"]
    pub peers: [*mut u8; 16usize],
    #[doc = "< own: data for each rank"]
    pub from: [*const u8; 16usize],
    #[doc = "< own: place of the data from each rank"]
    pub into: [*mut u8; 16usize],
    pub send_bytes: [u64; 16usize],
    pub receive_bytes: [u64; 16usize],
    #[doc = "< 0: every strip is one row"]
    pub row_bytes: u64,
    #[doc = "< from one row of `from` to the next"]
    pub from_pitch_bytes: u64,
    #[doc = "< from one row of `into` to the next"]
    pub into_pitch_bytes: u64,
    #[doc = "< direct: device memory; the operand that peers access"]
    pub table: *const PeerTable,
    #[doc = "< zero-copy: from the table's addresses to what this rank accesses"]
    pub theirs_bytes: [u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExchangeArgs"][::std::mem::size_of::<ExchangeArgs>() - 888usize];
    ["Alignment of ExchangeArgs"][::std::mem::align_of::<ExchangeArgs>() - 8usize];
    ["Offset of field: ExchangeArgs::state"][::std::mem::offset_of!(ExchangeArgs, state) - 0usize];
    ["Offset of field: ExchangeArgs::wait"][::std::mem::offset_of!(ExchangeArgs, wait) - 8usize];
    ["Offset of field: ExchangeArgs::rank"][::std::mem::offset_of!(ExchangeArgs, rank) - 32usize];
    ["Offset of field: ExchangeArgs::world"][::std::mem::offset_of!(ExchangeArgs, world) - 36usize];
    ["Offset of field: ExchangeArgs::lanes_log2"][::std::mem::offset_of!(ExchangeArgs, lanes_log2) - 40usize];
    ["Offset of field: ExchangeArgs::algorithm"][::std::mem::offset_of!(ExchangeArgs, algorithm) - 44usize];
    ["Offset of field: ExchangeArgs::op"][::std::mem::offset_of!(ExchangeArgs, op) - 48usize];
    ["Offset of field: ExchangeArgs::root"][::std::mem::offset_of!(ExchangeArgs, root) - 52usize];
    ["Offset of field: ExchangeArgs::dtype"][::std::mem::offset_of!(ExchangeArgs, dtype) - 56usize];
    ["Offset of field: ExchangeArgs::reduction"][::std::mem::offset_of!(ExchangeArgs, reduction) - 60usize];
    ["Offset of field: ExchangeArgs::slot_packets"][::std::mem::offset_of!(ExchangeArgs, slot_packets) - 64usize];
    ["Offset of field: ExchangeArgs::largest_bytes"][::std::mem::offset_of!(ExchangeArgs, largest_bytes) - 72usize];
    ["Offset of field: ExchangeArgs::learned"][::std::mem::offset_of!(ExchangeArgs, learned) - 80usize];
    ["Offset of field: ExchangeArgs::peers"][::std::mem::offset_of!(ExchangeArgs, peers) - 88usize];
    ["Offset of field: ExchangeArgs::from"][::std::mem::offset_of!(ExchangeArgs, from) - 216usize];
    ["Offset of field: ExchangeArgs::into"][::std::mem::offset_of!(ExchangeArgs, into) - 344usize];
    ["Offset of field: ExchangeArgs::send_bytes"][::std::mem::offset_of!(ExchangeArgs, send_bytes) - 472usize];
    ["Offset of field: ExchangeArgs::receive_bytes"][::std::mem::offset_of!(ExchangeArgs, receive_bytes) - 600usize];
    ["Offset of field: ExchangeArgs::row_bytes"][::std::mem::offset_of!(ExchangeArgs, row_bytes) - 728usize];
    ["Offset of field: ExchangeArgs::from_pitch_bytes"]
        [::std::mem::offset_of!(ExchangeArgs, from_pitch_bytes) - 736usize];
    ["Offset of field: ExchangeArgs::into_pitch_bytes"]
        [::std::mem::offset_of!(ExchangeArgs, into_pitch_bytes) - 744usize];
    ["Offset of field: ExchangeArgs::table"][::std::mem::offset_of!(ExchangeArgs, table) - 752usize];
    ["Offset of field: ExchangeArgs::theirs_bytes"][::std::mem::offset_of!(ExchangeArgs, theirs_bytes) - 760usize];
};
#[doc = " Actions of a signal kernel."]
pub const kSignalPut: u32 = 0;
pub const kSignalWait: u32 = 1;
pub const kSignalBarrier: u32 = 2;
#[doc = " One operation on a signal pad. A pad is channels x kMaxWorld words, [channel][source]."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SignalArgs {
    #[doc = "< the pad of every rank"]
    pub pads: [*mut u32; 16usize],
    #[doc = "< own: signals put so far, [channel][target]"]
    pub sent: *mut u32,
    #[doc = "< own: signals waited for so far, [channel][source]"]
    pub awaited: *mut u32,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    pub channel: u32,
    #[doc = "< put, wait"]
    pub peer: u32,
    #[doc = "< kSignal*"]
    pub action: u32,
    #[doc = "< kSignalBarrier: kOp*, reported when a wait gives up"]
    pub op: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SignalArgs"][::std::mem::size_of::<SignalArgs>() - 192usize];
    ["Alignment of SignalArgs"][::std::mem::align_of::<SignalArgs>() - 8usize];
    ["Offset of field: SignalArgs::pads"][::std::mem::offset_of!(SignalArgs, pads) - 0usize];
    ["Offset of field: SignalArgs::sent"][::std::mem::offset_of!(SignalArgs, sent) - 128usize];
    ["Offset of field: SignalArgs::awaited"][::std::mem::offset_of!(SignalArgs, awaited) - 136usize];
    ["Offset of field: SignalArgs::wait"][::std::mem::offset_of!(SignalArgs, wait) - 144usize];
    ["Offset of field: SignalArgs::rank"][::std::mem::offset_of!(SignalArgs, rank) - 168usize];
    ["Offset of field: SignalArgs::world"][::std::mem::offset_of!(SignalArgs, world) - 172usize];
    ["Offset of field: SignalArgs::channel"][::std::mem::offset_of!(SignalArgs, channel) - 176usize];
    ["Offset of field: SignalArgs::peer"][::std::mem::offset_of!(SignalArgs, peer) - 180usize];
    ["Offset of field: SignalArgs::action"][::std::mem::offset_of!(SignalArgs, action) - 184usize];
    ["Offset of field: SignalArgs::op"][::std::mem::offset_of!(SignalArgs, op) - 188usize];
};
#[doc = " The comparison of a call before it runs. LL packets, two per rank."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AgreeArgs {
    #[doc = "< scratch region: [epoch parity][source][2] packets"]
    pub peers: [*mut u8; 16usize],
    #[doc = "< own; entry 0 only"]
    pub state: *mut BlockState,
    #[doc = "< descriptor: bytes, then packed op | dtype << 8 | algorithm << 16 | reduction << 24"]
    pub ours: [u64; 2usize],
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AgreeArgs"][::std::mem::size_of::<AgreeArgs>() - 184usize];
    ["Alignment of AgreeArgs"][::std::mem::align_of::<AgreeArgs>() - 8usize];
    ["Offset of field: AgreeArgs::peers"][::std::mem::offset_of!(AgreeArgs, peers) - 0usize];
    ["Offset of field: AgreeArgs::state"][::std::mem::offset_of!(AgreeArgs, state) - 128usize];
    ["Offset of field: AgreeArgs::ours"][::std::mem::offset_of!(AgreeArgs, ours) - 136usize];
    ["Offset of field: AgreeArgs::wait"][::std::mem::offset_of!(AgreeArgs, wait) - 152usize];
    ["Offset of field: AgreeArgs::rank"][::std::mem::offset_of!(AgreeArgs, rank) - 176usize];
    ["Offset of field: AgreeArgs::world"][::std::mem::offset_of!(AgreeArgs, world) - 180usize];
};
#[doc = " Plain stores to peers, or an empty kernel, to measure the hardware. As large as AllReduceArgs, so that its launch\n costs as much."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ProbeArgs {
    #[doc = "< own; 16-byte aligned"]
    pub from: *const core::ffi::c_void,
    #[doc = "< the first `targets` of them receive every packet"]
    pub to: [*mut core::ffi::c_void; 16usize],
    #[doc = "< of 16 bytes"]
    pub packets: u64,
    pub targets: u32,
    pub reserved: [u32; 25usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ProbeArgs"][::std::mem::size_of::<ProbeArgs>() - 248usize];
    ["Alignment of ProbeArgs"][::std::mem::align_of::<ProbeArgs>() - 8usize];
    ["Offset of field: ProbeArgs::from"][::std::mem::offset_of!(ProbeArgs, from) - 0usize];
    ["Offset of field: ProbeArgs::to"][::std::mem::offset_of!(ProbeArgs, to) - 8usize];
    ["Offset of field: ProbeArgs::packets"][::std::mem::offset_of!(ProbeArgs, packets) - 136usize];
    ["Offset of field: ProbeArgs::targets"][::std::mem::offset_of!(ProbeArgs, targets) - 144usize];
    ["Offset of field: ProbeArgs::reserved"][::std::mem::offset_of!(ProbeArgs, reserved) - 148usize];
};
#[doc = " Launch geometry, a pure function of world size, bytes, type and algorithm."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Geometry {
    pub blocks: u32,
    #[doc = "< a block"]
    pub threads: u32,
    #[doc = "< a block"]
    pub shared_bytes: u32,
    #[doc = "< nonzero: may start while its predecessor drains (dependent launch)"]
    pub programmatic: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Geometry"][::std::mem::size_of::<Geometry>() - 16usize];
    ["Alignment of Geometry"][::std::mem::align_of::<Geometry>() - 4usize];
    ["Offset of field: Geometry::blocks"][::std::mem::offset_of!(Geometry, blocks) - 0usize];
    ["Offset of field: Geometry::threads"][::std::mem::offset_of!(Geometry, threads) - 4usize];
    ["Offset of field: Geometry::shared_bytes"][::std::mem::offset_of!(Geometry, shared_bytes) - 8usize];
    ["Offset of field: Geometry::programmatic"][::std::mem::offset_of!(Geometry, programmatic) - 12usize];
};
impl Kind {
    pub const all_reduce: Kind = Kind(0);
    pub const exchange: Kind = Kind(1);
    pub const counts: Kind = Kind(2);
    pub const signal: Kind = Kind(3);
    pub const agree: Kind = Kind(4);
    pub const probe: Kind = Kind(5);
}
#[repr(transparent)]
#[doc = " What a launch runs, one of launches.def. The numbers cross the language boundary."]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct Kind(pub u32);
/// An argument block of `kernels/launches.def`.
///
/// # Safety
/// `KIND` is the row of the block.
pub unsafe trait Block {
    const KIND: Kind;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for AllReduceArgs {
    const KIND: Kind = Kind::all_reduce;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for ExchangeArgs {
    const KIND: Kind = Kind::exchange;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for CountsArgs {
    const KIND: Kind = Kind::counts;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for SignalArgs {
    const KIND: Kind = Kind::signal;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for AgreeArgs {
    const KIND: Kind = Kind::agree;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for ProbeArgs {
    const KIND: Kind = Kind::probe;
}
