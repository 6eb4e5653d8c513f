//! Argument blocks of the kernels: `kernels/args.hpp` as bindgen mirrors it.
//! Generated: run `SYMMETRA_UPDATE=1 cargo test --test source bindings` after changing the header.
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, unreachable_pub, unsafe_code, unused, clippy::all)]

pub const kMaxWorld: u32 = 16;
pub const kOpAllReduce: u32 = 0;
pub const kOpSignalWait: u32 = 1;
pub const kOpSignalBarrier: u32 = 2;
pub const kOpAgree: u32 = 3;
pub const kOpCounts: u32 = 12;
pub const kOpAllReduceNorm: u32 = 15;
pub const kOpDispatch: u32 = 18;
pub const kOpCombine: u32 = 19;
pub const kOpPairs: u32 = 20;
pub const kOpHeap: u32 = 21;
pub const kStatusOk: u32 = 0;
pub const kStatusTimeout: u32 = 1;
pub const kStatusAborted: u32 = 2;
pub const kStatusMismatch: u32 = 3;
pub const kStatusRouting: u32 = 4;
pub const kStatusCapacity: u32 = 5;
pub const kStatusBounds: u32 = 6;
pub const kNoChannel: u64 = 18446744073709551615;
pub const kTokensAsked: u64 = 9223372036854775808;
#[repr(C)]
#[repr(align(16))]
#[derive(Debug, Copy, Clone)]
pub struct Status {
    pub abort: u32,
    pub code: u32,
    pub hold: u32,
    pub reserved: u32,
    pub op: u32,
    pub peer: u32,
    pub epoch: u32,
    pub unused: u32,
    pub sequence: u64,
    pub timeout_ns: u64,
    pub theirs: [u64; 2usize],
    pub waiting: u64,
    pub waited_ns: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Status"][::std::mem::size_of::<Status>() - 80usize];
    ["Alignment of Status"][::std::mem::align_of::<Status>() - 16usize];
    ["Offset of field: Status::abort"][::std::mem::offset_of!(Status, abort) - 0usize];
    ["Offset of field: Status::code"][::std::mem::offset_of!(Status, code) - 4usize];
    ["Offset of field: Status::hold"][::std::mem::offset_of!(Status, hold) - 8usize];
    ["Offset of field: Status::reserved"][::std::mem::offset_of!(Status, reserved) - 12usize];
    ["Offset of field: Status::op"][::std::mem::offset_of!(Status, op) - 16usize];
    ["Offset of field: Status::peer"][::std::mem::offset_of!(Status, peer) - 20usize];
    ["Offset of field: Status::epoch"][::std::mem::offset_of!(Status, epoch) - 24usize];
    ["Offset of field: Status::unused"][::std::mem::offset_of!(Status, unused) - 28usize];
    ["Offset of field: Status::sequence"][::std::mem::offset_of!(Status, sequence) - 32usize];
    ["Offset of field: Status::timeout_ns"][::std::mem::offset_of!(Status, timeout_ns) - 40usize];
    ["Offset of field: Status::theirs"][::std::mem::offset_of!(Status, theirs) - 48usize];
    ["Offset of field: Status::waiting"][::std::mem::offset_of!(Status, waiting) - 64usize];
    ["Offset of field: Status::waited_ns"][::std::mem::offset_of!(Status, waited_ns) - 72usize];
};
#[repr(C)]
#[repr(align(16))]
#[derive(Debug, Copy, Clone)]
pub struct TimeRecord {
    pub begin_ns: u64,
    pub number: u64,
    pub end_ns: u64,
    pub place: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of TimeRecord"][::std::mem::size_of::<TimeRecord>() - 32usize];
    ["Alignment of TimeRecord"][::std::mem::align_of::<TimeRecord>() - 16usize];
    ["Offset of field: TimeRecord::begin_ns"][::std::mem::offset_of!(TimeRecord, begin_ns) - 0usize];
    ["Offset of field: TimeRecord::number"][::std::mem::offset_of!(TimeRecord, number) - 8usize];
    ["Offset of field: TimeRecord::end_ns"][::std::mem::offset_of!(TimeRecord, end_ns) - 16usize];
    ["Offset of field: TimeRecord::place"][::std::mem::offset_of!(TimeRecord, place) - 24usize];
};
pub const kTimeRecords: u32 = 4096;
#[repr(C)]
#[repr(align(16))]
#[derive(Debug, Copy, Clone)]
pub struct Times {
    pub records: u64,
    pub recorded: u64,
    pub begin_ns: u64,
    pub label: u64,
    pub end_ns: u64,
    pub reserved: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Times"][::std::mem::size_of::<Times>() - 48usize];
    ["Alignment of Times"][::std::mem::align_of::<Times>() - 16usize];
    ["Offset of field: Times::records"][::std::mem::offset_of!(Times, records) - 0usize];
    ["Offset of field: Times::recorded"][::std::mem::offset_of!(Times, recorded) - 8usize];
    ["Offset of field: Times::begin_ns"][::std::mem::offset_of!(Times, begin_ns) - 16usize];
    ["Offset of field: Times::label"][::std::mem::offset_of!(Times, label) - 24usize];
    ["Offset of field: Times::end_ns"][::std::mem::offset_of!(Times, end_ns) - 32usize];
    ["Offset of field: Times::reserved"][::std::mem::offset_of!(Times, reserved) - 40usize];
};
#[repr(C)]
#[repr(align(16))]
#[derive(Debug, Copy, Clone)]
pub struct Progress {
    pub done: u64,
    pub failed: u32,
    pub looked: u32,
    pub times: Times,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Progress"][::std::mem::size_of::<Progress>() - 64usize];
    ["Alignment of Progress"][::std::mem::align_of::<Progress>() - 16usize];
    ["Offset of field: Progress::done"][::std::mem::offset_of!(Progress, done) - 0usize];
    ["Offset of field: Progress::failed"][::std::mem::offset_of!(Progress, failed) - 8usize];
    ["Offset of field: Progress::looked"][::std::mem::offset_of!(Progress, looked) - 12usize];
    ["Offset of field: Progress::times"][::std::mem::offset_of!(Progress, times) - 16usize];
};
pub const kTimeoutBits: u32 = 48;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Wait {
    pub progress: *mut Progress,
    pub status: *mut Status,
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
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Multicast {
    pub address: *mut core::ffi::c_void,
    pub table: *const PeerTable,
    pub offset_bytes: u64,
    pub world: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Multicast"][::std::mem::size_of::<Multicast>() - 32usize];
    ["Alignment of Multicast"][::std::mem::align_of::<Multicast>() - 8usize];
    ["Offset of field: Multicast::address"][::std::mem::offset_of!(Multicast, address) - 0usize];
    ["Offset of field: Multicast::table"][::std::mem::offset_of!(Multicast, table) - 8usize];
    ["Offset of field: Multicast::offset_bytes"][::std::mem::offset_of!(Multicast, offset_bytes) - 16usize];
    ["Offset of field: Multicast::world"][::std::mem::offset_of!(Multicast, world) - 24usize];
    ["Offset of field: Multicast::reserved"][::std::mem::offset_of!(Multicast, reserved) - 28usize];
};
pub const kRouteHeader: u32 = 0;
pub const kRouteTally: u32 = 1;
pub const kRouteCount: u32 = 2;
pub const kRoutePlace: u32 = 3;
pub const kRouteTasks: u32 = 4;
pub const kMoveStage: u32 = 0;
pub const kMoveCopy: u32 = 1;
pub const kMoveMetadata: u32 = 2;
pub const kMoveTasks: u32 = 3;
pub const kCombineSend: u32 = 0;
pub const kCombineReceive: u32 = 1;
pub const kCombineTasks: u32 = 2;
pub const kRowsByRank: u32 = 0;
pub const kRowsByExpert: u32 = 1;
pub const kRowsPadded: u32 = 2;
pub const kRowsBySource: u32 = 3;
pub const kRowLayouts: u32 = 4;
pub const kLayoutsByToken: u32 = 9;
pub const kWireBytes: u32 = 0;
pub const kWireSame: u32 = 1;
pub const kWireF8: u32 = 2;
pub const kWireGivenF8: u32 = 3;
pub const kWires: u32 = 4;
pub const kCodeScalesF32: u32 = 0;
pub const kCodeScalesPowers: u32 = 1;
pub const kCodeScalesE8M0: u32 = 2;
pub const kCodeScales: u32 = 3;
pub const kCodeGroup: u32 = 128;
pub const kMostTopK: u32 = 64;
pub const kScanWords: u32 = 2;
pub const kMostExpertHidden: u32 = 65536;
pub const kMostReplicas: u32 = 65534;
pub const kMostStagedExperts: u32 = 1024;
pub const kExpertWords: u32 = 288;
pub const kMostAheadThreads: u32 = 512;
pub const kStartFlagBlocks: u32 = 8;
pub const kStartFlagBytes: u32 = 512;
pub const kVerdictBytes: u32 = 384;
pub const kNone: u32 = 4294967295;
pub const kStaged: u64 = 18446744073709551615;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct RoutingHeader {
    pub tokens: u32,
    pub claimed: u32,
    pub room: u32,
    pub bad_token: u32,
    pub bad_expert: i64,
    pub wrong: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of RoutingHeader"][::std::mem::size_of::<RoutingHeader>() - 32usize];
    ["Alignment of RoutingHeader"][::std::mem::align_of::<RoutingHeader>() - 8usize];
    ["Offset of field: RoutingHeader::tokens"][::std::mem::offset_of!(RoutingHeader, tokens) - 0usize];
    ["Offset of field: RoutingHeader::claimed"][::std::mem::offset_of!(RoutingHeader, claimed) - 4usize];
    ["Offset of field: RoutingHeader::room"][::std::mem::offset_of!(RoutingHeader, room) - 8usize];
    ["Offset of field: RoutingHeader::bad_token"][::std::mem::offset_of!(RoutingHeader, bad_token) - 12usize];
    ["Offset of field: RoutingHeader::bad_expert"][::std::mem::offset_of!(RoutingHeader, bad_expert) - 16usize];
    ["Offset of field: RoutingHeader::wrong"][::std::mem::offset_of!(RoutingHeader, wrong) - 24usize];
    ["Offset of field: RoutingHeader::reserved"][::std::mem::offset_of!(RoutingHeader, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertArgs {
    pub wait: Wait,
    pub calls: *mut BlockState,
    pub rank: u32,
    pub world: u32,
    pub tokens: u32,
    pub top_k: u32,
    pub max_tokens: u32,
    pub align: u32,
    pub hidden: u32,
    pub first_replica: u32,
    pub layout: u32,
    pub local: u32,
    pub experts: u32,
    pub replicas: u32,
    pub table: *const u32,
    pub headers: *mut u8,
    pub state: *mut u32,
    pub places: *mut u32,
    pub header_bytes: u64,
    pub replicas_offset: u64,
    pub weights_offset: u64,
    pub capacity: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertArgs"][::std::mem::size_of::<ExpertArgs>() - 144usize];
    ["Alignment of ExpertArgs"][::std::mem::align_of::<ExpertArgs>() - 8usize];
    ["Offset of field: ExpertArgs::wait"][::std::mem::offset_of!(ExpertArgs, wait) - 0usize];
    ["Offset of field: ExpertArgs::calls"][::std::mem::offset_of!(ExpertArgs, calls) - 24usize];
    ["Offset of field: ExpertArgs::rank"][::std::mem::offset_of!(ExpertArgs, rank) - 32usize];
    ["Offset of field: ExpertArgs::world"][::std::mem::offset_of!(ExpertArgs, world) - 36usize];
    ["Offset of field: ExpertArgs::tokens"][::std::mem::offset_of!(ExpertArgs, tokens) - 40usize];
    ["Offset of field: ExpertArgs::top_k"][::std::mem::offset_of!(ExpertArgs, top_k) - 44usize];
    ["Offset of field: ExpertArgs::max_tokens"][::std::mem::offset_of!(ExpertArgs, max_tokens) - 48usize];
    ["Offset of field: ExpertArgs::align"][::std::mem::offset_of!(ExpertArgs, align) - 52usize];
    ["Offset of field: ExpertArgs::hidden"][::std::mem::offset_of!(ExpertArgs, hidden) - 56usize];
    ["Offset of field: ExpertArgs::first_replica"][::std::mem::offset_of!(ExpertArgs, first_replica) - 60usize];
    ["Offset of field: ExpertArgs::layout"][::std::mem::offset_of!(ExpertArgs, layout) - 64usize];
    ["Offset of field: ExpertArgs::local"][::std::mem::offset_of!(ExpertArgs, local) - 68usize];
    ["Offset of field: ExpertArgs::experts"][::std::mem::offset_of!(ExpertArgs, experts) - 72usize];
    ["Offset of field: ExpertArgs::replicas"][::std::mem::offset_of!(ExpertArgs, replicas) - 76usize];
    ["Offset of field: ExpertArgs::table"][::std::mem::offset_of!(ExpertArgs, table) - 80usize];
    ["Offset of field: ExpertArgs::headers"][::std::mem::offset_of!(ExpertArgs, headers) - 88usize];
    ["Offset of field: ExpertArgs::state"][::std::mem::offset_of!(ExpertArgs, state) - 96usize];
    ["Offset of field: ExpertArgs::places"][::std::mem::offset_of!(ExpertArgs, places) - 104usize];
    ["Offset of field: ExpertArgs::header_bytes"][::std::mem::offset_of!(ExpertArgs, header_bytes) - 112usize];
    ["Offset of field: ExpertArgs::replicas_offset"][::std::mem::offset_of!(ExpertArgs, replicas_offset) - 120usize];
    ["Offset of field: ExpertArgs::weights_offset"][::std::mem::offset_of!(ExpertArgs, weights_offset) - 128usize];
    ["Offset of field: ExpertArgs::capacity"][::std::mem::offset_of!(ExpertArgs, capacity) - 136usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertRouting {
    pub ids: *const core::ffi::c_void,
    pub weights: *const f32,
    pub token_count: *const u32,
    pub id_bytes: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertRouting"][::std::mem::size_of::<ExpertRouting>() - 32usize];
    ["Alignment of ExpertRouting"][::std::mem::align_of::<ExpertRouting>() - 8usize];
    ["Offset of field: ExpertRouting::ids"][::std::mem::offset_of!(ExpertRouting, ids) - 0usize];
    ["Offset of field: ExpertRouting::weights"][::std::mem::offset_of!(ExpertRouting, weights) - 8usize];
    ["Offset of field: ExpertRouting::token_count"][::std::mem::offset_of!(ExpertRouting, token_count) - 16usize];
    ["Offset of field: ExpertRouting::id_bytes"][::std::mem::offset_of!(ExpertRouting, id_bytes) - 24usize];
    ["Offset of field: ExpertRouting::reserved"][::std::mem::offset_of!(ExpertRouting, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertCounts {
    pub rows: *mut u32,
    pub offsets: *mut u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertCounts"][::std::mem::size_of::<ExpertCounts>() - 16usize];
    ["Alignment of ExpertCounts"][::std::mem::align_of::<ExpertCounts>() - 8usize];
    ["Offset of field: ExpertCounts::rows"][::std::mem::offset_of!(ExpertCounts, rows) - 0usize];
    ["Offset of field: ExpertCounts::offsets"][::std::mem::offset_of!(ExpertCounts, offsets) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct RouteArgs {
    pub base: ExpertArgs,
    pub routing: ExpertRouting,
    pub counts: ExpertCounts,
    pub task: u32,
    pub pair_places: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of RouteArgs"][::std::mem::size_of::<RouteArgs>() - 200usize];
    ["Alignment of RouteArgs"][::std::mem::align_of::<RouteArgs>() - 8usize];
    ["Offset of field: RouteArgs::routing"][::std::mem::offset_of!(RouteArgs, routing) - 144usize];
    ["Offset of field: RouteArgs::counts"][::std::mem::offset_of!(RouteArgs, counts) - 176usize];
    ["Offset of field: RouteArgs::task"][::std::mem::offset_of!(RouteArgs, task) - 192usize];
    ["Offset of field: RouteArgs::pair_places"][::std::mem::offset_of!(RouteArgs, pair_places) - 196usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertRows {
    pub values: *const core::ffi::c_void,
    pub scales: *const f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertRows"][::std::mem::size_of::<ExpertRows>() - 16usize];
    ["Alignment of ExpertRows"][::std::mem::align_of::<ExpertRows>() - 8usize];
    ["Offset of field: ExpertRows::values"][::std::mem::offset_of!(ExpertRows, values) - 0usize];
    ["Offset of field: ExpertRows::scales"][::std::mem::offset_of!(ExpertRows, scales) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct RowArgs {
    pub base: ExpertArgs,
    pub row_bytes: u64,
    pub scales_offset: u64,
    pub payload_bytes: u32,
    pub wire: u32,
    pub scales: u32,
    pub dtype: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of RowArgs"][::std::mem::size_of::<RowArgs>() - 176usize];
    ["Alignment of RowArgs"][::std::mem::align_of::<RowArgs>() - 8usize];
    ["Offset of field: RowArgs::row_bytes"][::std::mem::offset_of!(RowArgs, row_bytes) - 144usize];
    ["Offset of field: RowArgs::scales_offset"][::std::mem::offset_of!(RowArgs, scales_offset) - 152usize];
    ["Offset of field: RowArgs::payload_bytes"][::std::mem::offset_of!(RowArgs, payload_bytes) - 160usize];
    ["Offset of field: RowArgs::wire"][::std::mem::offset_of!(RowArgs, wire) - 164usize];
    ["Offset of field: RowArgs::scales"][::std::mem::offset_of!(RowArgs, scales) - 168usize];
    ["Offset of field: RowArgs::dtype"][::std::mem::offset_of!(RowArgs, dtype) - 172usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertOutputs {
    pub rows: *mut core::ffi::c_void,
    pub scales: *mut core::ffi::c_void,
    pub ids: *mut i32,
    pub weights: *mut f32,
    pub sources: *mut u32,
    pub index: *mut u32,
    pub scale_rows: u64,
    pub columns: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertOutputs"][::std::mem::size_of::<ExpertOutputs>() - 64usize];
    ["Alignment of ExpertOutputs"][::std::mem::align_of::<ExpertOutputs>() - 8usize];
    ["Offset of field: ExpertOutputs::rows"][::std::mem::offset_of!(ExpertOutputs, rows) - 0usize];
    ["Offset of field: ExpertOutputs::scales"][::std::mem::offset_of!(ExpertOutputs, scales) - 8usize];
    ["Offset of field: ExpertOutputs::ids"][::std::mem::offset_of!(ExpertOutputs, ids) - 16usize];
    ["Offset of field: ExpertOutputs::weights"][::std::mem::offset_of!(ExpertOutputs, weights) - 24usize];
    ["Offset of field: ExpertOutputs::sources"][::std::mem::offset_of!(ExpertOutputs, sources) - 32usize];
    ["Offset of field: ExpertOutputs::index"][::std::mem::offset_of!(ExpertOutputs, index) - 40usize];
    ["Offset of field: ExpertOutputs::scale_rows"][::std::mem::offset_of!(ExpertOutputs, scale_rows) - 48usize];
    ["Offset of field: ExpertOutputs::columns"][::std::mem::offset_of!(ExpertOutputs, columns) - 56usize];
    ["Offset of field: ExpertOutputs::reserved"][::std::mem::offset_of!(ExpertOutputs, reserved) - 60usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MoveArgs {
    pub base: RowArgs,
    pub rows: ExpertRows,
    pub staged: *mut u8,
    pub into: ExpertOutputs,
    pub task: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoveArgs"][::std::mem::size_of::<MoveArgs>() - 272usize];
    ["Alignment of MoveArgs"][::std::mem::align_of::<MoveArgs>() - 8usize];
    ["Offset of field: MoveArgs::rows"][::std::mem::offset_of!(MoveArgs, rows) - 176usize];
    ["Offset of field: MoveArgs::staged"][::std::mem::offset_of!(MoveArgs, staged) - 192usize];
    ["Offset of field: MoveArgs::into"][::std::mem::offset_of!(MoveArgs, into) - 200usize];
    ["Offset of field: MoveArgs::task"][::std::mem::offset_of!(MoveArgs, task) - 264usize];
    ["Offset of field: MoveArgs::reserved"][::std::mem::offset_of!(MoveArgs, reserved) - 268usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertPeers {
    pub barrier_offset: u64,
    pub regions: [*mut u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertPeers"][::std::mem::size_of::<ExpertPeers>() - 136usize];
    ["Alignment of ExpertPeers"][::std::mem::align_of::<ExpertPeers>() - 8usize];
    ["Offset of field: ExpertPeers::barrier_offset"][::std::mem::offset_of!(ExpertPeers, barrier_offset) - 0usize];
    ["Offset of field: ExpertPeers::regions"][::std::mem::offset_of!(ExpertPeers, regions) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PlacedRows {
    pub rows: u64,
    pub scales: u64,
    pub ids: u64,
    pub weights: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PlacedRows"][::std::mem::size_of::<PlacedRows>() - 32usize];
    ["Alignment of PlacedRows"][::std::mem::align_of::<PlacedRows>() - 8usize];
    ["Offset of field: PlacedRows::rows"][::std::mem::offset_of!(PlacedRows, rows) - 0usize];
    ["Offset of field: PlacedRows::scales"][::std::mem::offset_of!(PlacedRows, scales) - 8usize];
    ["Offset of field: PlacedRows::ids"][::std::mem::offset_of!(PlacedRows, ids) - 16usize];
    ["Offset of field: PlacedRows::weights"][::std::mem::offset_of!(PlacedRows, weights) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PushArgs {
    pub base: RowArgs,
    pub rows: ExpertRows,
    pub routing: ExpertRouting,
    pub staged_offset: u64,
    pub placed: PlacedRows,
    pub again: u32,
    pub reserved: u32,
    pub peers: ExpertPeers,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PushArgs"][::std::mem::size_of::<PushArgs>() - 408usize];
    ["Alignment of PushArgs"][::std::mem::align_of::<PushArgs>() - 8usize];
    ["Offset of field: PushArgs::rows"][::std::mem::offset_of!(PushArgs, rows) - 176usize];
    ["Offset of field: PushArgs::routing"][::std::mem::offset_of!(PushArgs, routing) - 192usize];
    ["Offset of field: PushArgs::staged_offset"][::std::mem::offset_of!(PushArgs, staged_offset) - 224usize];
    ["Offset of field: PushArgs::placed"][::std::mem::offset_of!(PushArgs, placed) - 232usize];
    ["Offset of field: PushArgs::again"][::std::mem::offset_of!(PushArgs, again) - 264usize];
    ["Offset of field: PushArgs::reserved"][::std::mem::offset_of!(PushArgs, reserved) - 268usize];
    ["Offset of field: PushArgs::peers"][::std::mem::offset_of!(PushArgs, peers) - 272usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExpertPacketArea {
    pub buffers: u32,
    pub control_packets: u32,
    pub buffer_bytes: u64,
    pub data_offset: u64,
    pub control_offset: u64,
    pub regions: [*mut u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExpertPacketArea"][::std::mem::size_of::<ExpertPacketArea>() - 160usize];
    ["Alignment of ExpertPacketArea"][::std::mem::align_of::<ExpertPacketArea>() - 8usize];
    ["Offset of field: ExpertPacketArea::buffers"][::std::mem::offset_of!(ExpertPacketArea, buffers) - 0usize];
    ["Offset of field: ExpertPacketArea::control_packets"]
        [::std::mem::offset_of!(ExpertPacketArea, control_packets) - 4usize];
    ["Offset of field: ExpertPacketArea::buffer_bytes"]
        [::std::mem::offset_of!(ExpertPacketArea, buffer_bytes) - 8usize];
    ["Offset of field: ExpertPacketArea::data_offset"][::std::mem::offset_of!(ExpertPacketArea, data_offset) - 16usize];
    ["Offset of field: ExpertPacketArea::control_offset"]
        [::std::mem::offset_of!(ExpertPacketArea, control_offset) - 24usize];
    ["Offset of field: ExpertPacketArea::regions"][::std::mem::offset_of!(ExpertPacketArea, regions) - 32usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SendArgs {
    pub base: RowArgs,
    pub rows: ExpertRows,
    pub routing: ExpertRouting,
    pub packets: ExpertPacketArea,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SendArgs"][::std::mem::size_of::<SendArgs>() - 384usize];
    ["Alignment of SendArgs"][::std::mem::align_of::<SendArgs>() - 8usize];
    ["Offset of field: SendArgs::rows"][::std::mem::offset_of!(SendArgs, rows) - 176usize];
    ["Offset of field: SendArgs::routing"][::std::mem::offset_of!(SendArgs, routing) - 192usize];
    ["Offset of field: SendArgs::packets"][::std::mem::offset_of!(SendArgs, packets) - 224usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ReceiveArgs {
    pub base: RowArgs,
    pub packets: ExpertPacketArea,
    pub rows_at_once: u32,
    pub holds_replicas: u32,
    pub follows: u32,
    pub reserved: u32,
    pub counts: ExpertCounts,
    pub into: ExpertOutputs,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ReceiveArgs"][::std::mem::size_of::<ReceiveArgs>() - 432usize];
    ["Alignment of ReceiveArgs"][::std::mem::align_of::<ReceiveArgs>() - 8usize];
    ["Offset of field: ReceiveArgs::packets"][::std::mem::offset_of!(ReceiveArgs, packets) - 176usize];
    ["Offset of field: ReceiveArgs::rows_at_once"][::std::mem::offset_of!(ReceiveArgs, rows_at_once) - 336usize];
    ["Offset of field: ReceiveArgs::holds_replicas"][::std::mem::offset_of!(ReceiveArgs, holds_replicas) - 340usize];
    ["Offset of field: ReceiveArgs::follows"][::std::mem::offset_of!(ReceiveArgs, follows) - 344usize];
    ["Offset of field: ReceiveArgs::reserved"][::std::mem::offset_of!(ReceiveArgs, reserved) - 348usize];
    ["Offset of field: ReceiveArgs::counts"][::std::mem::offset_of!(ReceiveArgs, counts) - 352usize];
    ["Offset of field: ReceiveArgs::into"][::std::mem::offset_of!(ReceiveArgs, into) - 368usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PartArgs {
    pub base: ExpertArgs,
    pub results: *const core::ffi::c_void,
    pub output: *mut core::ffi::c_void,
    pub add: *const core::ffi::c_void,
    pub sums: *mut f32,
    pub part_bytes: u64,
    pub weighs: u32,
    pub exact: u32,
    pub step: u32,
    pub sharers: u32,
    pub dtype: u32,
    pub task: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PartArgs"][::std::mem::size_of::<PartArgs>() - 208usize];
    ["Alignment of PartArgs"][::std::mem::align_of::<PartArgs>() - 8usize];
    ["Offset of field: PartArgs::results"][::std::mem::offset_of!(PartArgs, results) - 144usize];
    ["Offset of field: PartArgs::output"][::std::mem::offset_of!(PartArgs, output) - 152usize];
    ["Offset of field: PartArgs::add"][::std::mem::offset_of!(PartArgs, add) - 160usize];
    ["Offset of field: PartArgs::sums"][::std::mem::offset_of!(PartArgs, sums) - 168usize];
    ["Offset of field: PartArgs::part_bytes"][::std::mem::offset_of!(PartArgs, part_bytes) - 176usize];
    ["Offset of field: PartArgs::weighs"][::std::mem::offset_of!(PartArgs, weighs) - 184usize];
    ["Offset of field: PartArgs::exact"][::std::mem::offset_of!(PartArgs, exact) - 188usize];
    ["Offset of field: PartArgs::step"][::std::mem::offset_of!(PartArgs, step) - 192usize];
    ["Offset of field: PartArgs::sharers"][::std::mem::offset_of!(PartArgs, sharers) - 196usize];
    ["Offset of field: PartArgs::dtype"][::std::mem::offset_of!(PartArgs, dtype) - 200usize];
    ["Offset of field: PartArgs::task"][::std::mem::offset_of!(PartArgs, task) - 204usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CombineArgs {
    pub base: PartArgs,
    pub sent: *mut u8,
    pub received: *mut u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CombineArgs"][::std::mem::size_of::<CombineArgs>() - 224usize];
    ["Alignment of CombineArgs"][::std::mem::align_of::<CombineArgs>() - 8usize];
    ["Offset of field: CombineArgs::sent"][::std::mem::offset_of!(CombineArgs, sent) - 208usize];
    ["Offset of field: CombineArgs::received"][::std::mem::offset_of!(CombineArgs, received) - 216usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CombineDirectArgs {
    pub base: PartArgs,
    pub parts_offset: u64,
    pub results_offset: u64,
    pub peers: ExpertPeers,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CombineDirectArgs"][::std::mem::size_of::<CombineDirectArgs>() - 360usize];
    ["Alignment of CombineDirectArgs"][::std::mem::align_of::<CombineDirectArgs>() - 8usize];
    ["Offset of field: CombineDirectArgs::parts_offset"]
        [::std::mem::offset_of!(CombineDirectArgs, parts_offset) - 208usize];
    ["Offset of field: CombineDirectArgs::results_offset"]
        [::std::mem::offset_of!(CombineDirectArgs, results_offset) - 216usize];
    ["Offset of field: CombineDirectArgs::peers"][::std::mem::offset_of!(CombineDirectArgs, peers) - 224usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CombinePacketArgs {
    pub base: PartArgs,
    pub own_stays: u32,
    pub follows: u32,
    pub packets: ExpertPacketArea,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CombinePacketArgs"][::std::mem::size_of::<CombinePacketArgs>() - 376usize];
    ["Alignment of CombinePacketArgs"][::std::mem::align_of::<CombinePacketArgs>() - 8usize];
    ["Offset of field: CombinePacketArgs::own_stays"][::std::mem::offset_of!(CombinePacketArgs, own_stays) - 208usize];
    ["Offset of field: CombinePacketArgs::follows"][::std::mem::offset_of!(CombinePacketArgs, follows) - 212usize];
    ["Offset of field: CombinePacketArgs::packets"][::std::mem::offset_of!(CombinePacketArgs, packets) - 216usize];
};
pub const kHeapProbeLoad: u32 = 0;
pub const kHeapProbeAdd: u32 = 1;
pub const kHeapProbeMessage: u32 = 2;
pub const kHeapProbePut: u32 = 3;
pub const kHeapProbes: u32 = 4;
pub const kHeapProbeLineWords: u32 = 32;
pub const kHeapProbeMessageBytes: u32 = 16;
pub const kHeapProbeSlotWords: u32 = 4;
pub const kHeapProbeFold: u64 = 6364136223846793005;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct HeapProbeArgs {
    pub heap: Heap,
    pub from: *mut core::ffi::c_void,
    pub at: *mut core::ffi::c_void,
    pub found: *mut u64,
    pub bytes: u64,
    pub task: u32,
    pub peer: u32,
    pub rounds: u32,
    pub line_mask: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HeapProbeArgs"][::std::mem::size_of::<HeapProbeArgs>() - 368usize];
    ["Alignment of HeapProbeArgs"][::std::mem::align_of::<HeapProbeArgs>() - 8usize];
    ["Offset of field: HeapProbeArgs::heap"][::std::mem::offset_of!(HeapProbeArgs, heap) - 0usize];
    ["Offset of field: HeapProbeArgs::from"][::std::mem::offset_of!(HeapProbeArgs, from) - 320usize];
    ["Offset of field: HeapProbeArgs::at"][::std::mem::offset_of!(HeapProbeArgs, at) - 328usize];
    ["Offset of field: HeapProbeArgs::found"][::std::mem::offset_of!(HeapProbeArgs, found) - 336usize];
    ["Offset of field: HeapProbeArgs::bytes"][::std::mem::offset_of!(HeapProbeArgs, bytes) - 344usize];
    ["Offset of field: HeapProbeArgs::task"][::std::mem::offset_of!(HeapProbeArgs, task) - 352usize];
    ["Offset of field: HeapProbeArgs::peer"][::std::mem::offset_of!(HeapProbeArgs, peer) - 356usize];
    ["Offset of field: HeapProbeArgs::rounds"][::std::mem::offset_of!(HeapProbeArgs, rounds) - 360usize];
    ["Offset of field: HeapProbeArgs::line_mask"][::std::mem::offset_of!(HeapProbeArgs, line_mask) - 364usize];
};
pub const kMulticastSumToAll: u32 = 0;
pub const kMulticastSum: u32 = 1;
pub const kMulticastToAll: u32 = 2;
pub const kMulticastTasks: u32 = 3;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MulticastArgs {
    pub state: *mut BlockState,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    pub lanes_log2: u32,
    pub task: u32,
    pub dtype: u32,
    pub op: u32,
    pub bytes: u64,
    pub arenas: Multicast,
    pub flags: Multicast,
    pub from: *const core::ffi::c_void,
    pub into: *mut core::ffi::c_void,
    pub from_bytes: u64,
    pub into_bytes: u64,
    pub peers: [*mut u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MulticastArgs"][::std::mem::size_of::<MulticastArgs>() - 288usize];
    ["Alignment of MulticastArgs"][::std::mem::align_of::<MulticastArgs>() - 8usize];
    ["Offset of field: MulticastArgs::state"][::std::mem::offset_of!(MulticastArgs, state) - 0usize];
    ["Offset of field: MulticastArgs::wait"][::std::mem::offset_of!(MulticastArgs, wait) - 8usize];
    ["Offset of field: MulticastArgs::rank"][::std::mem::offset_of!(MulticastArgs, rank) - 32usize];
    ["Offset of field: MulticastArgs::world"][::std::mem::offset_of!(MulticastArgs, world) - 36usize];
    ["Offset of field: MulticastArgs::lanes_log2"][::std::mem::offset_of!(MulticastArgs, lanes_log2) - 40usize];
    ["Offset of field: MulticastArgs::task"][::std::mem::offset_of!(MulticastArgs, task) - 44usize];
    ["Offset of field: MulticastArgs::dtype"][::std::mem::offset_of!(MulticastArgs, dtype) - 48usize];
    ["Offset of field: MulticastArgs::op"][::std::mem::offset_of!(MulticastArgs, op) - 52usize];
    ["Offset of field: MulticastArgs::bytes"][::std::mem::offset_of!(MulticastArgs, bytes) - 56usize];
    ["Offset of field: MulticastArgs::arenas"][::std::mem::offset_of!(MulticastArgs, arenas) - 64usize];
    ["Offset of field: MulticastArgs::flags"][::std::mem::offset_of!(MulticastArgs, flags) - 96usize];
    ["Offset of field: MulticastArgs::from"][::std::mem::offset_of!(MulticastArgs, from) - 128usize];
    ["Offset of field: MulticastArgs::into"][::std::mem::offset_of!(MulticastArgs, into) - 136usize];
    ["Offset of field: MulticastArgs::from_bytes"][::std::mem::offset_of!(MulticastArgs, from_bytes) - 144usize];
    ["Offset of field: MulticastArgs::into_bytes"][::std::mem::offset_of!(MulticastArgs, into_bytes) - 152usize];
    ["Offset of field: MulticastArgs::peers"][::std::mem::offset_of!(MulticastArgs, peers) - 160usize];
};
pub const kPairStreams: u32 = 16;
pub const kPairChannels: u32 = 32;
pub const kPairWays: u32 = 48;
pub const kPairSlots: u32 = 2;
pub const kLeastStreamPackets: u32 = 16;
pub const kPairCountBytes: u32 = 64;
pub const kPairTakenOffset: u32 = 49152;
pub const kPairStreamsOffset: u32 = 98304;
pub const kPairTaskBytes: u32 = 24;
pub const kPairCounts: u32 = 1536;
pub const kMostPairEnds: u32 = 96;
pub const kMostPairLanes: u32 = 30;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PairEnd {
    pub address: *mut u8,
    pub bytes: u64,
    pub peer: u32,
    pub sends: u32,
    pub piece_packets: u32,
    pub pieces: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PairEnd"][::std::mem::size_of::<PairEnd>() - 32usize];
    ["Alignment of PairEnd"][::std::mem::align_of::<PairEnd>() - 8usize];
    ["Offset of field: PairEnd::address"][::std::mem::offset_of!(PairEnd, address) - 0usize];
    ["Offset of field: PairEnd::bytes"][::std::mem::offset_of!(PairEnd, bytes) - 8usize];
    ["Offset of field: PairEnd::peer"][::std::mem::offset_of!(PairEnd, peer) - 16usize];
    ["Offset of field: PairEnd::sends"][::std::mem::offset_of!(PairEnd, sends) - 20usize];
    ["Offset of field: PairEnd::piece_packets"][::std::mem::offset_of!(PairEnd, piece_packets) - 24usize];
    ["Offset of field: PairEnd::pieces"][::std::mem::offset_of!(PairEnd, pieces) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PairsArgs {
    pub wait: Wait,
    pub counts: *mut u32,
    pub rank: u32,
    pub world: u32,
    pub streams: u32,
    pub channels: u32,
    pub stream_packets: u32,
    pub slot_packets: u32,
    pub used_streams: u32,
    pub used_channels: u32,
    pub op: u32,
    pub lanes: u32,
    pub first: [u8; 32usize],
    pub peers: [*mut u8; 16usize],
    pub end: [PairEnd; 96usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PairsArgs"][::std::mem::size_of::<PairsArgs>() - 3304usize];
    ["Alignment of PairsArgs"][::std::mem::align_of::<PairsArgs>() - 8usize];
    ["Offset of field: PairsArgs::wait"][::std::mem::offset_of!(PairsArgs, wait) - 0usize];
    ["Offset of field: PairsArgs::counts"][::std::mem::offset_of!(PairsArgs, counts) - 24usize];
    ["Offset of field: PairsArgs::rank"][::std::mem::offset_of!(PairsArgs, rank) - 32usize];
    ["Offset of field: PairsArgs::world"][::std::mem::offset_of!(PairsArgs, world) - 36usize];
    ["Offset of field: PairsArgs::streams"][::std::mem::offset_of!(PairsArgs, streams) - 40usize];
    ["Offset of field: PairsArgs::channels"][::std::mem::offset_of!(PairsArgs, channels) - 44usize];
    ["Offset of field: PairsArgs::stream_packets"][::std::mem::offset_of!(PairsArgs, stream_packets) - 48usize];
    ["Offset of field: PairsArgs::slot_packets"][::std::mem::offset_of!(PairsArgs, slot_packets) - 52usize];
    ["Offset of field: PairsArgs::used_streams"][::std::mem::offset_of!(PairsArgs, used_streams) - 56usize];
    ["Offset of field: PairsArgs::used_channels"][::std::mem::offset_of!(PairsArgs, used_channels) - 60usize];
    ["Offset of field: PairsArgs::op"][::std::mem::offset_of!(PairsArgs, op) - 64usize];
    ["Offset of field: PairsArgs::lanes"][::std::mem::offset_of!(PairsArgs, lanes) - 68usize];
    ["Offset of field: PairsArgs::first"][::std::mem::offset_of!(PairsArgs, first) - 72usize];
    ["Offset of field: PairsArgs::peers"][::std::mem::offset_of!(PairsArgs, peers) - 104usize];
    ["Offset of field: PairsArgs::end"][::std::mem::offset_of!(PairsArgs, end) - 232usize];
};
pub const kMostScaleBlocks: u32 = 1024;
pub const kMostScaleThreads: u32 = 512;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ScaleArgs {
    pub input: *const core::ffi::c_void,
    pub output: *mut core::ffi::c_void,
    pub factor: *const core::ffi::c_void,
    pub value: u64,
    pub elems: u64,
    pub input_pitch: u64,
    pub output_pitch: u64,
    pub rows: u32,
    pub dtype: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ScaleArgs"][::std::mem::size_of::<ScaleArgs>() - 64usize];
    ["Alignment of ScaleArgs"][::std::mem::align_of::<ScaleArgs>() - 8usize];
    ["Offset of field: ScaleArgs::input"][::std::mem::offset_of!(ScaleArgs, input) - 0usize];
    ["Offset of field: ScaleArgs::output"][::std::mem::offset_of!(ScaleArgs, output) - 8usize];
    ["Offset of field: ScaleArgs::factor"][::std::mem::offset_of!(ScaleArgs, factor) - 16usize];
    ["Offset of field: ScaleArgs::value"][::std::mem::offset_of!(ScaleArgs, value) - 24usize];
    ["Offset of field: ScaleArgs::elems"][::std::mem::offset_of!(ScaleArgs, elems) - 32usize];
    ["Offset of field: ScaleArgs::input_pitch"][::std::mem::offset_of!(ScaleArgs, input_pitch) - 40usize];
    ["Offset of field: ScaleArgs::output_pitch"][::std::mem::offset_of!(ScaleArgs, output_pitch) - 48usize];
    ["Offset of field: ScaleArgs::rows"][::std::mem::offset_of!(ScaleArgs, rows) - 56usize];
    ["Offset of field: ScaleArgs::dtype"][::std::mem::offset_of!(ScaleArgs, dtype) - 60usize];
};
pub const kMaxBlocks: u32 = 256;
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
pub const kF8E4M3: u32 = 10;
pub const kF8E5M2: u32 = 11;
pub const kElementTypes: u32 = 12;
pub const kSum: u32 = 0;
pub const kProduct: u32 = 1;
pub const kMin: u32 = 2;
pub const kMax: u32 = 3;
pub const kAverage: u32 = 4;
pub const kOneShotLL: u32 = 0;
pub const kOneShotSentinel: u32 = 1;
pub const kTwoShotLL: u32 = 2;
pub const kTwoShotSentinel: u32 = 3;
pub const kTwoShotZeroCopy: u32 = 4;
pub const kRing: u32 = 5;
pub const kRecursiveDoubling: u32 = 6;
pub const kAllReduceAlgorithms: u32 = 7;
pub const kMulticastOneShot: u32 = 7;
pub const kMulticastTwoShot: u32 = 8;
pub const kCodecNone: u32 = 0;
pub const kCodecFp8: u32 = 1;
pub const kCodecInt8: u32 = 2;
pub const kCodecInt6: u32 = 3;
pub const kCodecInt4: u32 = 4;
pub const kCodecs: u32 = 5;
pub const kUnitElems: u32 = 512;
pub const kGroupElems: u32 = 32;
pub const kRingChannels: u32 = 128;
pub const kRingSlots: u32 = 2;
pub const kRingCountsOffset: u32 = 16384;
pub const kRingCountBytes: u32 = 64;
pub const kRingQueuesOffset: u32 = 32768;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct BlockState {
    pub epoch: u32,
    pub previous: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of BlockState"][::std::mem::size_of::<BlockState>() - 8usize];
    ["Alignment of BlockState"][::std::mem::align_of::<BlockState>() - 4usize];
    ["Offset of field: BlockState::epoch"][::std::mem::offset_of!(BlockState, epoch) - 0usize];
    ["Offset of field: BlockState::previous"][::std::mem::offset_of!(BlockState, previous) - 4usize];
};
pub const kEpochModulus: u32 = 4294967292;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AllReduceArgs {
    pub input: *const core::ffi::c_void,
    pub output: *mut core::ffi::c_void,
    pub count: u64,
    pub state: *mut BlockState,
    pub lanes_log2: u32,
    pub rank: u32,
    pub wait: Wait,
    pub slot_packets: u64,
    pub world: u32,
    pub reduction: u32,
    pub peers: [*mut u8; 16usize],
    pub dtype: u32,
    pub algorithm: u32,
    pub codec: u32,
    pub inputs: *const PeerTable,
    pub outputs: *const PeerTable,
    pub inputs_offset_bytes: u64,
    pub outputs_offset_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AllReduceArgs"][::std::mem::size_of::<AllReduceArgs>() - 256usize];
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
    ["Offset of field: AllReduceArgs::reduction"][::std::mem::offset_of!(AllReduceArgs, reduction) - 76usize];
    ["Offset of field: AllReduceArgs::peers"][::std::mem::offset_of!(AllReduceArgs, peers) - 80usize];
    ["Offset of field: AllReduceArgs::dtype"][::std::mem::offset_of!(AllReduceArgs, dtype) - 208usize];
    ["Offset of field: AllReduceArgs::algorithm"][::std::mem::offset_of!(AllReduceArgs, algorithm) - 212usize];
    ["Offset of field: AllReduceArgs::codec"][::std::mem::offset_of!(AllReduceArgs, codec) - 216usize];
    ["Offset of field: AllReduceArgs::inputs"][::std::mem::offset_of!(AllReduceArgs, inputs) - 224usize];
    ["Offset of field: AllReduceArgs::outputs"][::std::mem::offset_of!(AllReduceArgs, outputs) - 232usize];
    ["Offset of field: AllReduceArgs::inputs_offset_bytes"]
        [::std::mem::offset_of!(AllReduceArgs, inputs_offset_bytes) - 240usize];
    ["Offset of field: AllReduceArgs::outputs_offset_bytes"]
        [::std::mem::offset_of!(AllReduceArgs, outputs_offset_bytes) - 248usize];
};
pub const kExchangePackets: u32 = 0;
pub const kExchangePush: u32 = 1;
pub const kExchangeRelay: u32 = 2;
pub const kReducePackets: u32 = 3;
pub const kReducePull: u32 = 4;
pub const kReduceLocal: u32 = 5;
pub const kRelayPackets: u32 = 6;
pub const kReduceSentinels: u32 = 7;
pub const kExchangeEscaped: u32 = 8;
pub const kExchangeAlgorithms: u32 = 9;
pub const kRelayLine: u32 = 8;
pub const kEscapedUnitPackets: u32 = 4;
pub const kEscapedGroupUnits: u32 = 32;
pub const kEscapedGroupPackets: u32 = 136;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Learned {
    pub largest_bytes: u64,
    pub direct: u64,
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
pub const kNotReached: u64 = 18446744073709551615;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CountsArgs {
    pub peers: [*mut u8; 16usize],
    pub state: *mut BlockState,
    pub learned: *mut Learned,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    pub send_bytes: [u64; 16usize],
    pub receive_bytes: [u64; 16usize],
    pub offset_bytes: [u64; 16usize],
    pub largest_bytes: u64,
    pub direct: u64,
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
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ExchangeArgs {
    pub state: *mut BlockState,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    pub lanes_log2: u32,
    pub algorithm: u32,
    pub op: u32,
    pub root: u32,
    pub dtype: u32,
    pub reduction: u32,
    pub slot_packets: u64,
    pub largest_bytes: u64,
    pub learned: *const Learned,
    pub peers: [*mut u8; 16usize],
    pub from: [*const u8; 16usize],
    pub into: [*mut u8; 16usize],
    pub send_bytes: [u64; 16usize],
    pub receive_bytes: [u64; 16usize],
    pub row_bytes: u64,
    pub from_pitch_bytes: u64,
    pub into_pitch_bytes: u64,
    pub table: *const PeerTable,
    pub theirs_bytes: [u64; 16usize],
    pub sources: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ExchangeArgs"][::std::mem::size_of::<ExchangeArgs>() - 896usize];
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
    ["Offset of field: ExchangeArgs::sources"][::std::mem::offset_of!(ExchangeArgs, sources) - 888usize];
};
pub const kSignalPut: u32 = 0;
pub const kSignalWait: u32 = 1;
pub const kSignalBarrier: u32 = 2;
pub const kSignalTake: u32 = 3;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SignalArgs {
    pub pads: [*mut u32; 16usize],
    pub sent: *mut u32,
    pub awaited: *mut u32,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
    pub channel: u32,
    pub peer: u32,
    pub action: u32,
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
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AgreeArgs {
    pub peers: [*mut u8; 16usize],
    pub state: *mut BlockState,
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
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ProbeArgs {
    pub from: *const core::ffi::c_void,
    pub to: [*mut core::ffi::c_void; 16usize],
    pub packets: u64,
    pub targets: u32,
    pub reserved: [u32; 27usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ProbeArgs"][::std::mem::size_of::<ProbeArgs>() - 256usize];
    ["Alignment of ProbeArgs"][::std::mem::align_of::<ProbeArgs>() - 8usize];
    ["Offset of field: ProbeArgs::from"][::std::mem::offset_of!(ProbeArgs, from) - 0usize];
    ["Offset of field: ProbeArgs::to"][::std::mem::offset_of!(ProbeArgs, to) - 8usize];
    ["Offset of field: ProbeArgs::packets"][::std::mem::offset_of!(ProbeArgs, packets) - 136usize];
    ["Offset of field: ProbeArgs::targets"][::std::mem::offset_of!(ProbeArgs, targets) - 144usize];
    ["Offset of field: ProbeArgs::reserved"][::std::mem::offset_of!(ProbeArgs, reserved) - 148usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct WideProbeArgs {
    pub reserved: [u64; 54usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of WideProbeArgs"][::std::mem::size_of::<WideProbeArgs>() - 432usize];
    ["Alignment of WideProbeArgs"][::std::mem::align_of::<WideProbeArgs>() - 8usize];
    ["Offset of field: WideProbeArgs::reserved"][::std::mem::offset_of!(WideProbeArgs, reserved) - 0usize];
};
pub const kNormColumns: u32 = 1024;
pub const kNormFold: u32 = 8;
pub const kNormWords: u32 = 1172;
pub const kNormSharedBytes: u32 = 4704;
pub const kNormLargestWords: u32 = 1172;
pub const kMostCluster: u32 = 8;
pub const kMostClusteredThreads: u32 = 512;
pub const kClusteredSharedBytes: u32 = 528;
pub const kMostClusteredTiles: u32 = 4;
pub const kClusteredByRow: u32 = 1;
pub const kClusteredByShare: u32 = 2;
pub const kMostByShareThreads: u32 = 256;
pub const kMostClusteredGroup: u32 = 32;
pub const kLinePackets: u32 = 8;
pub const kStagePackets: u32 = 1024;
pub const kMostNormBlocks: u32 = 65535;
pub const kMostHidden: u32 = 1048576;
pub const kMostWidth: u32 = 2147483648;
pub const kScalingStatic: u32 = 0;
pub const kScalingPerToken: u32 = 1;
pub const kScalingPerGroup: u32 = 2;
pub const kScalingMx: u32 = 3;
pub const kScalingNvfp4: u32 = 4;
pub const kScalings: u32 = 5;
pub const kNarrowE4M3: u32 = 0;
pub const kNarrowE5M2: u32 = 1;
pub const kNarrowE2M1: u32 = 2;
pub const kNarrowI8: u32 = 3;
pub const kNarrows: u32 = 4;
pub const kScalesRows: u32 = 0;
pub const kScalesColumns: u32 = 1;
pub const kScalesPackedColumns: u32 = 2;
pub const kScalesSwizzled128x4: u32 = 3;
pub const kScaleLayouts: u32 = 4;
pub const kGroupStep: u32 = 16;
pub const kMostGroup: u32 = 1048576;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct QuantisedRows {
    pub values: *mut core::ffi::c_void,
    pub scales: *mut core::ffi::c_void,
    pub known_scale: *const f32,
    pub first_row: u64,
    pub all_rows: u64,
    pub scaling: u32,
    pub to: u32,
    pub elems: u32,
    pub layout: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QuantisedRows"][::std::mem::size_of::<QuantisedRows>() - 56usize];
    ["Alignment of QuantisedRows"][::std::mem::align_of::<QuantisedRows>() - 8usize];
    ["Offset of field: QuantisedRows::values"][::std::mem::offset_of!(QuantisedRows, values) - 0usize];
    ["Offset of field: QuantisedRows::scales"][::std::mem::offset_of!(QuantisedRows, scales) - 8usize];
    ["Offset of field: QuantisedRows::known_scale"][::std::mem::offset_of!(QuantisedRows, known_scale) - 16usize];
    ["Offset of field: QuantisedRows::first_row"][::std::mem::offset_of!(QuantisedRows, first_row) - 24usize];
    ["Offset of field: QuantisedRows::all_rows"][::std::mem::offset_of!(QuantisedRows, all_rows) - 32usize];
    ["Offset of field: QuantisedRows::scaling"][::std::mem::offset_of!(QuantisedRows, scaling) - 40usize];
    ["Offset of field: QuantisedRows::to"][::std::mem::offset_of!(QuantisedRows, to) - 44usize];
    ["Offset of field: QuantisedRows::elems"][::std::mem::offset_of!(QuantisedRows, elems) - 48usize];
    ["Offset of field: QuantisedRows::layout"][::std::mem::offset_of!(QuantisedRows, layout) - 52usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct NormArgs {
    pub input: *const core::ffi::c_void,
    pub residual: *const core::ffi::c_void,
    pub weight: *const core::ffi::c_void,
    pub residual_out: *mut core::ffi::c_void,
    pub output: *mut core::ffi::c_void,
    pub rows: u64,
    pub input_pitch: u64,
    pub hidden: u32,
    pub width: u32,
    pub dtype: u32,
    pub weight_dtype: u32,
    pub epsilon: f32,
    pub weight_offset: f32,
    pub quantised: QuantisedRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of NormArgs"][::std::mem::size_of::<NormArgs>() - 136usize];
    ["Alignment of NormArgs"][::std::mem::align_of::<NormArgs>() - 8usize];
    ["Offset of field: NormArgs::input"][::std::mem::offset_of!(NormArgs, input) - 0usize];
    ["Offset of field: NormArgs::residual"][::std::mem::offset_of!(NormArgs, residual) - 8usize];
    ["Offset of field: NormArgs::weight"][::std::mem::offset_of!(NormArgs, weight) - 16usize];
    ["Offset of field: NormArgs::residual_out"][::std::mem::offset_of!(NormArgs, residual_out) - 24usize];
    ["Offset of field: NormArgs::output"][::std::mem::offset_of!(NormArgs, output) - 32usize];
    ["Offset of field: NormArgs::rows"][::std::mem::offset_of!(NormArgs, rows) - 40usize];
    ["Offset of field: NormArgs::input_pitch"][::std::mem::offset_of!(NormArgs, input_pitch) - 48usize];
    ["Offset of field: NormArgs::hidden"][::std::mem::offset_of!(NormArgs, hidden) - 56usize];
    ["Offset of field: NormArgs::width"][::std::mem::offset_of!(NormArgs, width) - 60usize];
    ["Offset of field: NormArgs::dtype"][::std::mem::offset_of!(NormArgs, dtype) - 64usize];
    ["Offset of field: NormArgs::weight_dtype"][::std::mem::offset_of!(NormArgs, weight_dtype) - 68usize];
    ["Offset of field: NormArgs::epsilon"][::std::mem::offset_of!(NormArgs, epsilon) - 72usize];
    ["Offset of field: NormArgs::weight_offset"][::std::mem::offset_of!(NormArgs, weight_offset) - 76usize];
    ["Offset of field: NormArgs::quantised"][::std::mem::offset_of!(NormArgs, quantised) - 80usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct LayerNormArgs {
    pub base: NormArgs,
    pub bias: *const core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of LayerNormArgs"][::std::mem::size_of::<LayerNormArgs>() - 144usize];
    ["Alignment of LayerNormArgs"][::std::mem::align_of::<LayerNormArgs>() - 8usize];
    ["Offset of field: LayerNormArgs::bias"][::std::mem::offset_of!(LayerNormArgs, bias) - 136usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FusedNormArgs {
    pub norm: NormArgs,
    pub share_rows: u64,
    pub op: u32,
    pub gathers: u32,
    pub clustered: u32,
    pub sum: AllReduceArgs,
    pub values: *const PeerTable,
    pub scales: *const PeerTable,
    pub values_offset_bytes: u64,
    pub scales_offset_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of FusedNormArgs"][::std::mem::size_of::<FusedNormArgs>() - 448usize];
    ["Alignment of FusedNormArgs"][::std::mem::align_of::<FusedNormArgs>() - 8usize];
    ["Offset of field: FusedNormArgs::norm"][::std::mem::offset_of!(FusedNormArgs, norm) - 0usize];
    ["Offset of field: FusedNormArgs::share_rows"][::std::mem::offset_of!(FusedNormArgs, share_rows) - 136usize];
    ["Offset of field: FusedNormArgs::op"][::std::mem::offset_of!(FusedNormArgs, op) - 144usize];
    ["Offset of field: FusedNormArgs::gathers"][::std::mem::offset_of!(FusedNormArgs, gathers) - 148usize];
    ["Offset of field: FusedNormArgs::clustered"][::std::mem::offset_of!(FusedNormArgs, clustered) - 152usize];
    ["Offset of field: FusedNormArgs::sum"][::std::mem::offset_of!(FusedNormArgs, sum) - 160usize];
    ["Offset of field: FusedNormArgs::values"][::std::mem::offset_of!(FusedNormArgs, values) - 416usize];
    ["Offset of field: FusedNormArgs::scales"][::std::mem::offset_of!(FusedNormArgs, scales) - 424usize];
    ["Offset of field: FusedNormArgs::values_offset_bytes"]
        [::std::mem::offset_of!(FusedNormArgs, values_offset_bytes) - 432usize];
    ["Offset of field: FusedNormArgs::scales_offset_bytes"]
        [::std::mem::offset_of!(FusedNormArgs, scales_offset_bytes) - 440usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FusedLayerNormArgs {
    pub base: FusedNormArgs,
    pub bias: *const core::ffi::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of FusedLayerNormArgs"][::std::mem::size_of::<FusedLayerNormArgs>() - 456usize];
    ["Alignment of FusedLayerNormArgs"][::std::mem::align_of::<FusedLayerNormArgs>() - 8usize];
    ["Offset of field: FusedLayerNormArgs::bias"][::std::mem::offset_of!(FusedLayerNormArgs, bias) - 448usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Geometry {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub programmatic: u32,
    pub cluster: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Geometry"][::std::mem::size_of::<Geometry>() - 20usize];
    ["Alignment of Geometry"][::std::mem::align_of::<Geometry>() - 4usize];
    ["Offset of field: Geometry::blocks"][::std::mem::offset_of!(Geometry, blocks) - 0usize];
    ["Offset of field: Geometry::threads"][::std::mem::offset_of!(Geometry, threads) - 4usize];
    ["Offset of field: Geometry::shared_bytes"][::std::mem::offset_of!(Geometry, shared_bytes) - 8usize];
    ["Offset of field: Geometry::programmatic"][::std::mem::offset_of!(Geometry, programmatic) - 12usize];
    ["Offset of field: Geometry::cluster"][::std::mem::offset_of!(Geometry, cluster) - 16usize];
};
impl Kind {
    pub const all_reduce: Kind = Kind(0);
    pub const exchange: Kind = Kind(1);
    pub const counts: Kind = Kind(2);
    pub const signal: Kind = Kind(3);
    pub const agree: Kind = Kind(4);
    pub const probe: Kind = Kind(5);
    pub const norm: Kind = Kind(6);
    pub const fused_norm: Kind = Kind(7);
    pub const expert_route: Kind = Kind(8);
    pub const expert_move: Kind = Kind(9);
    pub const expert_push: Kind = Kind(10);
    pub const expert_send: Kind = Kind(11);
    pub const expert_receive: Kind = Kind(12);
    pub const expert_combine: Kind = Kind(13);
    pub const expert_combine_direct: Kind = Kind(14);
    pub const expert_combine_packets: Kind = Kind(15);
    pub const pairs: Kind = Kind(16);
    pub const multicast: Kind = Kind(17);
    pub const heap_probe: Kind = Kind(18);
    pub const wide_probe: Kind = Kind(19);
    pub const layer_norm: Kind = Kind(20);
    pub const fused_layer_norm: Kind = Kind(21);
    pub const scale: Kind = Kind(22);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct Kind(pub u32);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct SignalPad {
    pub pads: [*mut u32; 16usize],
    pub sent: *mut u32,
    pub awaited: *mut u32,
    pub wait: Wait,
    pub rank: u32,
    pub world: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SignalPad"][::std::mem::size_of::<SignalPad>() - 176usize];
    ["Alignment of SignalPad"][::std::mem::align_of::<SignalPad>() - 8usize];
    ["Offset of field: SignalPad::pads"][::std::mem::offset_of!(SignalPad, pads) - 0usize];
    ["Offset of field: SignalPad::sent"][::std::mem::offset_of!(SignalPad, sent) - 128usize];
    ["Offset of field: SignalPad::awaited"][::std::mem::offset_of!(SignalPad, awaited) - 136usize];
    ["Offset of field: SignalPad::wait"][::std::mem::offset_of!(SignalPad, wait) - 144usize];
    ["Offset of field: SignalPad::rank"][::std::mem::offset_of!(SignalPad, rank) - 168usize];
    ["Offset of field: SignalPad::world"][::std::mem::offset_of!(SignalPad, world) - 172usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct Heap {
    pub base: [*mut u8; 16usize],
    pub bytes: u64,
    pub signals: SignalPad,
    pub channels: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Heap"][::std::mem::size_of::<Heap>() - 320usize];
    ["Alignment of Heap"][::std::mem::align_of::<Heap>() - 8usize];
    ["Offset of field: Heap::base"][::std::mem::offset_of!(Heap, base) - 0usize];
    ["Offset of field: Heap::bytes"][::std::mem::offset_of!(Heap, bytes) - 128usize];
    ["Offset of field: Heap::signals"][::std::mem::offset_of!(Heap, signals) - 136usize];
    ["Offset of field: Heap::channels"][::std::mem::offset_of!(Heap, channels) - 312usize];
    ["Offset of field: Heap::reserved"][::std::mem::offset_of!(Heap, reserved) - 316usize];
};
impl Status {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl TimeRecord {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Times {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Progress {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Wait {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PeerTable {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Multicast {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl RoutingHeader {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertRouting {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertCounts {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl RouteArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertRows {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl RowArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertOutputs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl MoveArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertPeers {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PlacedRows {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PushArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExpertPacketArea {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl SendArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ReceiveArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PartArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl CombineArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl CombineDirectArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl CombinePacketArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl HeapProbeArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl MulticastArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PairEnd {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl PairsArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ScaleArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl BlockState {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl AllReduceArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Learned {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl CountsArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ExchangeArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl SignalArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl AgreeArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl ProbeArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl WideProbeArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl QuantisedRows {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl NormArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl LayerNormArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl FusedNormArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl FusedLayerNormArgs {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Geometry {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl SignalPad {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
impl Heap {
    /// All numbers 0, and all addresses null.
    // SAFETY: numbers and addresses, for which zero bytes are values.
    pub const NONE: Self = unsafe { ::std::mem::zeroed() };
}
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
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for NormArgs {
    const KIND: Kind = Kind::norm;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for FusedNormArgs {
    const KIND: Kind = Kind::fused_norm;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for RouteArgs {
    const KIND: Kind = Kind::expert_route;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for MoveArgs {
    const KIND: Kind = Kind::expert_move;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for PushArgs {
    const KIND: Kind = Kind::expert_push;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for SendArgs {
    const KIND: Kind = Kind::expert_send;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for ReceiveArgs {
    const KIND: Kind = Kind::expert_receive;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for CombineArgs {
    const KIND: Kind = Kind::expert_combine;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for CombineDirectArgs {
    const KIND: Kind = Kind::expert_combine_direct;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for CombinePacketArgs {
    const KIND: Kind = Kind::expert_combine_packets;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for PairsArgs {
    const KIND: Kind = Kind::pairs;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for MulticastArgs {
    const KIND: Kind = Kind::multicast;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for HeapProbeArgs {
    const KIND: Kind = Kind::heap_probe;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for WideProbeArgs {
    const KIND: Kind = Kind::wide_probe;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for LayerNormArgs {
    const KIND: Kind = Kind::layer_norm;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for FusedLayerNormArgs {
    const KIND: Kind = Kind::fused_layer_norm;
}
// SAFETY: the row of `kernels/launches.def`.
unsafe impl Block for ScaleArgs {
    const KIND: Kind = Kind::scale;
}
