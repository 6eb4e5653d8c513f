//! The functions of NCCL, each also by its `pnccl` name.
//!
//! Every function has one line: its name, its arguments, and what it does on a communicator of this library. Handles of
//! other libraries go on to the real NCCL as they are.
#![allow(unsafe_code, clippy::too_many_arguments)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{self, Code, CommProperties, CudaStream, Handle, SimInfo, Team, UniqueId};
use crate::comm::{Comm, ServingLibrary};
use crate::error::{self, CallFailure, Result};
use crate::operations::{self, CollectiveArguments};
use crate::out::answer;
use crate::parts::{self, Excluded};
use crate::real::pass_on;
use crate::reductions::Scalar;
use crate::registering::Registering;
use crate::route::{self, CommTarget};
use crate::windows::{self, Windows};
use crate::wish::SplitRequest;
use crate::{ending, group, log, memory, opening, queries, version};

/// Defines functions of NCCL by two names. After the arguments stands what the function does:
/// * `does RESULT`: for functions without a communicator;
/// * `of COMM does |comm| RESULT`: a question of a communicator of this library, or a step of this rank alone;
/// * `of COMM meets |comm| RESULT`: a step of all ranks, which the real NCCL runs at the end of a group;
/// * `of COMM enqueues |comm, own| RESULT`: an operation on symmetra's kernels;
/// * `of COMM refuses`: not served, and passed on for handles of the real NCCL;
/// * `passes`: passed on always;
/// * `passes after RESULT`: passed on unless the result is a failure.
macro_rules! exports {
    () => {};
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) does $result:expr; $($rest:tt)*) => {
        exports!(@both $name $twin($($arg: $type),*) route::call(stringify!($name), || $result));
        exports!($($rest)*);
    };
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) of $comm:ident does $own:expr; $($rest:tt)*) => {
        exports!(@both $name $twin($($arg: $type),*) route::call(stringify!($name), || match route::target($comm)? {
            CommTarget::Own(own) => $own(&own).map(route::Coded::code),
            CommTarget::Real($comm) => pass_on!($name($($arg: $type),*)),
        }));
        exports!($($rest)*);
    };
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) of $comm:ident meets $own:expr; $($rest:tt)*) => {
        exports!(@both $name $twin($($arg: $type),*) route::call(stringify!($name), || match route::target($comm)? {
            CommTarget::Own(own) => $own(&own).map(route::Coded::code),
            CommTarget::Real($comm) => {
                group::enter_real()?;
                pass_on!($name($($arg: $type),*))
            }
        }));
        exports!($($rest)*);
    };
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) of $comm:ident enqueues $own:expr; $($rest:tt)*) => {
        exports!(@both $name $twin($($arg: $type),*) route::call(stringify!($name), || match route::target($comm)? {
            CommTarget::Own(own) => route::operation(&own, $own).map(|()| abi::SUCCESS),
            CommTarget::Real($comm) => {
                group::enter_real()?;
                pass_on!($name($($arg: $type),*))
            }
        }));
        exports!($($rest)*);
    };
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) of $comm:ident refuses; $($rest:tt)*) => {
        exports!($name $twin($($arg: $type),*) of $comm does |_: &Comm| unserved(stringify!($name)); $($rest)*);
    };
    ($name:ident $twin:ident($($arg:ident: $type:ty),* $(,)?) passes $(after $check:expr)?; $($rest:tt)*) => {
        exports!(@both $name $twin($($arg: $type),*) route::call(stringify!($name), || {
            $($check?;)?
            pass_on!($name($($arg: $type),*))
        }));
        exports!($($rest)*);
    };
    (@both $name:ident $twin:ident($($arg:ident: $type:ty),*) $code:expr) => {
        /// The function of NCCL with this name.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> Code {
            $code
        }

        /// The function of NCCL with this name, for tools that wrap the other name.
        #[unsafe(no_mangle)]
        extern "C" fn $twin($($arg: $type),*) -> Code {
            $name($($arg),*)
        }
    };
}

/// The failure of a function that is not served on communicators of this library.
fn unserved(function: &str) -> Result {
    let reason = "SYMMETRA_NCCL_SERVE=off gives communicators to the real NCCL";
    Err(CallFailure::usage(format!("{function} is not served on symmetra's kernels: {reason}")))
}

/// Runs `run` on the windows of a communicator.
fn windows_of(comm: &Comm, run: impl FnOnce(&Windows) -> Result) -> Result {
    match comm.side()? {
        ServingLibrary::Own(own) => run(&own.windows),
        ServingLibrary::Real(_) => Ok(()),
    }
}

type MemoryPointer = *const c_void;
type Out = *mut c_void;

// Operations.
exports! {
    ncclAllReduce pncclAllReduce(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::all_reduce(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, op);
    ncclReduce pncclReduce(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, op: c_int, root: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::reduce(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, op, root);
    ncclBroadcast pncclBroadcast(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::broadcast(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, root);
    ncclBcast pncclBcast(buffer: Out, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| {
            operations::broadcast(comm, own, CollectiveArguments { send: buffer, receive: buffer, count, dtype, stream }, root)
        };
    ncclAllGather pncclAllGather(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::all_gather(comm, own, CollectiveArguments { send, receive, count, dtype, stream });
    ncclReduceScatter pncclReduceScatter(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::reduce_scatter(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, op);
    ncclAlltoAll pncclAlltoAll(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::all_to_all(comm, own, CollectiveArguments { send, receive, count, dtype, stream });
    ncclGather pncclGather(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::gather(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, root);
    ncclScatter pncclScatter(send: MemoryPointer, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| operations::scatter(comm, own, CollectiveArguments { send, receive, count, dtype, stream }, root);
    ncclSend pncclSend(send: MemoryPointer, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| {
            operations::message(comm, own, CollectiveArguments { send, receive: std::ptr::null_mut(), count, dtype, stream }, peer, true)
        };
    ncclRecv pncclRecv(receive: Out, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: CudaStream)
        of comm enqueues |comm, own| {
            operations::message(comm, own, CollectiveArguments { send: std::ptr::null(), receive, count, dtype, stream }, peer, false)
        };
}

// Groups.
exports! {
    ncclGroupStart pncclGroupStart() does group::start();
    ncclGroupEnd pncclGroupEnd() does group::end();
    ncclGroupSimulateEnd pncclGroupSimulateEnd(simulation: *mut SimInfo) does queries::simulate(simulation);
}

// The life of a communicator.
exports! {
    ncclGetVersion pncclGetVersion(number: *mut c_int) does answer("the version", number, version::reported()?);
    ncclGetUniqueId pncclGetUniqueId(id: *mut UniqueId) does opening::unique_id(id);
    ncclCommInitRank pncclCommInitRank(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int)
        does opening::init(comm, ranks, id, rank, std::ptr::null());
    ncclCommInitRankConfig pncclCommInitRankConfig(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: MemoryPointer)
        does opening::init(comm, ranks, id, rank, config);
    ncclCommInitRankScalable pncclCommInitRankScalable(
        comm: *mut Handle, ranks: c_int, rank: c_int, count: c_int, ids: *const UniqueId, config: MemoryPointer,
    ) does opening::init_scalable(comm, [ranks, rank], ids, count, config);
    ncclCommInitAll pncclCommInitAll(comms: *mut Handle, count: c_int, devices: *const c_int)
        does opening::init_all(comms, count, devices, || {
            pass_on!(ncclCommInitAll(comms: *mut Handle, count: c_int, devices: *const c_int))
        });
    ncclCommSplit pncclCommSplit(comm: Handle, color: c_int, key: c_int, part: *mut Handle, config: MemoryPointer)
        does parts::split(comm, SplitRequest { color, key }, part, config, || {
            group::enter_real()?;
            pass_on!(ncclCommSplit(comm: Handle, color: c_int, key: c_int, part: *mut Handle, config: MemoryPointer))
        });
    ncclCommFinalize pncclCommFinalize(comm: Handle) does ending::finalize(comm, |comm| pass_on!(ncclCommFinalize(comm: Handle)));
    ncclCommDestroy pncclCommDestroy(comm: Handle) does ending::destroy(comm, |comm| pass_on!(ncclCommDestroy(comm: Handle)));
    ncclCommAbort pncclCommAbort(comm: Handle) does ending::abort(comm, |comm| pass_on!(ncclCommAbort(comm: Handle)));
    ncclCommGetAsyncError pncclCommGetAsyncError(comm: Handle, code: *mut Code)
        of comm does |comm: &Comm| answer("the asynchronous error", code, comm.async_code()?);
    ncclCommCount pncclCommCount(comm: Handle, count: *mut c_int)
        of comm does |comm: &Comm| answer("the count", count, comm.open_place()?.ranks as c_int);
    ncclCommUserRank pncclCommUserRank(comm: Handle, rank: *mut c_int)
        of comm does |comm: &Comm| answer("the rank", rank, comm.open_place()?.rank as c_int);
    ncclCommCuDevice pncclCommCuDevice(comm: Handle, device: *mut c_int)
        of comm does |comm: &Comm| answer("the device", device, comm.device);
    ncclCommQueryProperties pncclCommQueryProperties(comm: Handle, properties: *mut CommProperties)
        of comm does |comm: &Comm| queries::properties(comm, properties);
    ncclCommMemStats pncclCommMemStats(comm: Handle, statistic: c_int, value: *mut u64)
        of comm does |comm: &Comm| queries::memory(comm, statistic, value);
    ncclCommShrink pncclCommShrink(
        comm: Handle, list: *mut c_int, count: c_int, part: *mut Handle, config: MemoryPointer, flags: c_int,
    ) of comm meets |comm| parts::shrink(comm, Excluded { list, count }, part, config, flags);
    ncclCommRevoke pncclCommRevoke(comm: Handle, flags: c_int)
        does ending::revoke(comm, flags, |comm| pass_on!(ncclCommRevoke(comm: Handle, flags: c_int)));
}

// Memory, windows and reductions of the program.
exports! {
    ncclMemAlloc pncclMemAlloc(pointer: *mut Out, bytes: usize)
        does memory::allocate(pointer, bytes, || pass_on!(ncclMemAlloc(pointer: *mut Out, bytes: usize)));
    ncclMemFree pncclMemFree(pointer: Out) does match pointer.is_null() || memory::free(pointer) {
        true => Ok(abi::SUCCESS),
        false => pass_on!(ncclMemFree(pointer: Out)).map_err(|_| memory::unknown(pointer)),
    };
    ncclCommRegister pncclCommRegister(comm: Handle, buffer: Out, bytes: usize, handle: *mut Handle)
        of comm does |comm: &Comm| memory::register(comm, buffer, bytes, handle);
    ncclCommDeregister pncclCommDeregister(comm: Handle, handle: Handle)
        of comm does |comm: &Comm| memory::deregister(comm, handle);
    ncclCommWindowRegister pncclCommWindowRegister(comm: Handle, buffer: Out, bytes: usize, window: *mut Handle, flags: c_int)
        of comm meets |comm| {
            // SAFETY: NCCL's contract: an `ncclWindow_t`, which stays until the outermost group has ended.
            group::register(unsafe { Registering::new(comm, buffer, bytes, window, flags) }?)
        };
    ncclCommWindowDeregister pncclCommWindowDeregister(comm: Handle, window: Handle)
        of comm does |comm: &Comm| {
            // Null is no window: a registration of memory that cannot be shared.
            windows_of(comm, |windows| if window.is_null() { Ok(()) } else { windows.deregister(window) })
        };
    ncclWinGetUserPtr pncclWinGetUserPtr(comm: Handle, window: Handle, pointer: *mut Out)
        of comm does |comm: &Comm| {
            windows_of(comm, |windows| answer("the address of the pointer", pointer, windows.address(window)?))
        };
    ncclRedOpCreatePreMulSum pncclRedOpCreatePreMulSum(op: *mut c_int, scalar: Out, dtype: c_int, residence: c_int, comm: Handle)
        of comm does |comm: &Comm| {
            comm.check_usable()?;
            comm.reductions.create(op, Scalar { address: scalar, dtype, residence })
        };
    ncclRedOpDestroy pncclRedOpDestroy(op: c_int, comm: Handle)
        of comm does |comm: &Comm| {
            comm.check_usable()?;
            comm.reductions.destroy(op)
        };
}

// Functions that this library does not serve.
exports! {
    ncclCommGetUniqueId pncclCommGetUniqueId(comm: Handle, id: *mut UniqueId) of comm refuses;
    ncclCommGrow pncclCommGrow(comm: Handle, ranks: c_int, id: *const UniqueId, rank: c_int, grown: *mut Handle, config: MemoryPointer)
        of comm meets |_: &Comm| unserved("ncclCommGrow");
    ncclCommSuspend pncclCommSuspend(comm: Handle, flags: c_int) of comm refuses;
    ncclCommResume pncclCommResume(comm: Handle) of comm refuses;
    ncclPutSignal pncclPutSignal(
        buffer: MemoryPointer, count: usize, dtype: c_int, peer: c_int, window: Handle, offset: usize, signal: c_int, context: c_int,
        flags: c_uint, comm: Handle, stream: CudaStream,
    ) of comm refuses;
    ncclSignal pncclSignal(peer: c_int, signal: c_int, context: c_int, flags: c_uint, comm: Handle, stream: CudaStream)
        of comm refuses;
    ncclWaitSignal pncclWaitSignal(count: c_int, signals: Out, comm: Handle, stream: CudaStream) of comm refuses;
    ncclDevCommCreate pncclDevCommCreate(comm: Handle, requirements: MemoryPointer, made: Out)
        of comm meets |_: &Comm| unserved("ncclDevCommCreate");
    ncclDevCommDestroy pncclDevCommDestroy(comm: Handle, made: MemoryPointer) of comm refuses;
    ncclGinBarrierCreateRequirement pncclGinBarrierCreateRequirement(
        comm: Handle, team: Team, barriers: c_int, handle: Out, requirement: Out,
    ) of comm refuses;
    ncclGetLsaDevicePointer pncclGetLsaDevicePointer(window: Handle, offset: usize, rank: c_int, pointer: *mut Out) passes after windows::refuse_own(window);
    ncclGetPeerDevicePointer pncclGetPeerDevicePointer(window: Handle, offset: usize, rank: c_int, pointer: *mut Out) passes after windows::refuse_own(window);
    ncclGetLsaMultimemDevicePointer pncclGetLsaMultimemDevicePointer(window: Handle, offset: usize, pointer: *mut Out) passes after windows::refuse_own(window);
    ncclGetMultimemDevicePointer pncclGetMultimemDevicePointer(
        window: Handle, offset: usize, multimem: Out, pointer: *mut Out,
    ) passes after windows::refuse_own(window);
    ncclLsaBarrierCreateRequirement pncclLsaBarrierCreateRequirement(
        team: Team, barriers: c_int, handle: Out, requirement: Out,
    ) passes;
    ncclLLA2ACreateRequirement pncclLLA2ACreateRequirement(blocks: c_int, slots: c_int, handle: Out, requirement: Out) passes;
    ncclGinOutboxCreateRequirement pncclGinOutboxCreateRequirement(
        blocks: c_int, size: c_int, handle: Out, requirement: Out,
    ) passes;
    ncclGinInboxA2ACreateRequirement pncclGinInboxA2ACreateRequirement(
        team: Team, blocks: c_int, size: c_int, handle: Out, requirement: Out,
    ) passes;
    ncclParamBind pncclParamBind(parameter: *mut Handle, key: *const c_char) passes;
    ncclParamGet pncclParamGet(parameter: Handle, value: Out, room: c_int, bytes: *mut c_int) passes;
    ncclParamGetI8 pncclParamGetI8(parameter: Handle, value: *mut i8) passes;
    ncclParamGetI16 pncclParamGetI16(parameter: Handle, value: *mut i16) passes;
    ncclParamGetI32 pncclParamGetI32(parameter: Handle, value: *mut i32) passes;
    ncclParamGetI64 pncclParamGetI64(parameter: Handle, value: *mut i64) passes;
    ncclParamGetU8 pncclParamGetU8(parameter: Handle, value: *mut u8) passes;
    ncclParamGetU16 pncclParamGetU16(parameter: Handle, value: *mut u16) passes;
    ncclParamGetU32 pncclParamGetU32(parameter: Handle, value: *mut u32) passes;
    ncclParamGetU64 pncclParamGetU64(parameter: Handle, value: *mut u64) passes;
    ncclParamGetStr pncclParamGetStr(parameter: Handle, value: *mut *const c_char) passes;
    ncclParamGetParameter pncclParamGetParameter(key: *const c_char, value: *mut *const c_char, bytes: *mut c_int) passes;
    ncclParamGetAllParameterKeys pncclParamGetAllParameterKeys(keys: *mut *mut *const c_char, count: *mut c_int) passes;
}

/// Functions that return something else than a code: nothing can be refused there.
macro_rules! others {
    ($($name:ident $twin:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $value:expr;)*) => {$(
        /// The function of NCCL with this name.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            $value
        }

        /// The function of NCCL with this name, for tools that wrap the other name.
        #[unsafe(no_mangle)]
        extern "C" fn $twin($($arg: $type),*) $(-> $result)? {
            $name($($arg),*)
        }
    )*};
}

others! {
    ncclGetErrorString pncclGetErrorString(code: Code) -> *const c_char = error::words(code).as_ptr();
    ncclGetLastError pncclGetLastError(_comm: Handle) -> *const c_char = error::last();
    ncclResetDebugInit pncclResetDebugInit() = log::reset();
    ncclResetDebugInitInternal pncclResetDebugInitInternal() = log::reset();
    ncclParamDumpAll pncclParamDumpAll() = ();
    ncclLLA2ACalcSlots pncclLLA2ACalcSlots(bytes: c_int, ranks: c_int) -> c_int
        = pass_on!(ncclLLA2ACalcSlots(bytes: c_int, ranks: c_int) -> c_int).unwrap_or_default();
    ncclTeamWorld pncclTeamWorld(comm: Handle) -> Team
        = route::question(comm, queries::world, |comm| pass_on!(ncclTeamWorld(comm: Handle) -> Team));
    ncclTeamLsa pncclTeamLsa(comm: Handle) -> Team
        = route::question(comm, queries::world, |comm| pass_on!(ncclTeamLsa(comm: Handle) -> Team));
    ncclTeamRail pncclTeamRail(comm: Handle) -> Team
        = route::question(comm, queries::rail, |comm| pass_on!(ncclTeamRail(comm: Handle) -> Team));
    ncclTeamRankToWorld pncclTeamRankToWorld(comm: Handle, team: Team, rank: c_int) -> c_int
        = route::question(comm, |comm| queries::team_rank(comm, team, rank), |comm| {
            pass_on!(ncclTeamRankToWorld(comm: Handle, team: Team, rank: c_int) -> c_int)
        });
    ncclTeamRankToLsa pncclTeamRankToLsa(comm: Handle, team: Team, rank: c_int) -> c_int
        = route::question(comm, |comm| queries::team_rank(comm, team, rank), |comm| {
            pass_on!(ncclTeamRankToLsa(comm: Handle, team: Team, rank: c_int) -> c_int)
        });
}

/// The mark of this library, which a search for the real NCCL skips, and the library's version.
#[unsafe(no_mangle)]
extern "C" fn symmetra_nccl_front() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// 1 if symmetra serves the communicator, 0 if the real NCCL does or the handle is not known.
#[unsafe(no_mangle)]
extern "C" fn symmetra_nccl_served(comm: Handle) -> c_int {
    matches!(route::target(comm), Ok(CommTarget::Own(own)) if own.own().is_some()).into()
}
