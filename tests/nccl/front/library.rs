//! The library as a program finds it: loaded at run time, each function by its name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

pub(crate) type Comm = usize;
pub(crate) type Id = [u8; 128];

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ByValue(pub(crate) Id);

/// The file of the library, in the folder of the test or in the folder above.
pub(crate) fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join("libsymmetra_nccl.so"));
    files.find(|file| file.exists()).expect("cargo builds the library with its tests")
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| unsafe { Library::new(path()) }.unwrap())
}

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        pub(crate) fn $name($($arg: $type),*) -> c_int {
            static ADDRESS: OnceLock<usize> = OnceLock::new();
            let address = *ADDRESS.get_or_init(|| unsafe {
                *library().get::<*const c_void>(stringify!($name).as_bytes()).unwrap() as usize
            });
            let function = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address) };
            unsafe { function($($arg),*) }
        }
    )*};
}

type In = *const c_void;
type Out = *mut c_void;

functions! {
    ncclGetVersion(version: *mut c_int);
    ncclGetUniqueId(id: *mut ByValue);
    ncclCommInitRank(comm: *mut Comm, ranks: c_int, id: ByValue, rank: c_int);
    ncclCommInitRankConfig(comm: *mut Comm, ranks: c_int, id: ByValue, rank: c_int, config: *const u8);
    ncclCommInitAll(comms: *mut Comm, count: c_int, devices: *const c_int);
    ncclCommSplit(comm: Comm, color: c_int, key: c_int, part: *mut Comm, config: *const u8);
    ncclCommShrink(comm: Comm, list: *const c_int, count: c_int, part: *mut Comm, config: *const u8, flags: c_int);
    ncclCommRevoke(comm: Comm, flags: c_int);
    ncclCommFinalize(comm: Comm);
    ncclCommDestroy(comm: Comm);
    ncclCommAbort(comm: Comm);
    ncclCommGetAsyncError(comm: Comm, code: *mut c_int);
    ncclCommCount(comm: Comm, count: *mut c_int);
    ncclCommUserRank(comm: Comm, rank: *mut c_int);
    ncclCommCuDevice(comm: Comm, device: *mut c_int);
    ncclGroupStart();
    ncclGroupEnd();
    ncclAllReduce(send: In, receive: Out, count: usize, dtype: c_int, op: c_int, comm: Comm, stream: usize);
    ncclReduce(send: In, receive: Out, count: usize, dtype: c_int, op: c_int, root: c_int, comm: Comm, stream: usize);
    ncclBroadcast(send: In, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Comm, stream: usize);
    ncclBcast(buffer: Out, count: usize, dtype: c_int, root: c_int, comm: Comm, stream: usize);
    ncclAllGather(send: In, receive: Out, count: usize, dtype: c_int, comm: Comm, stream: usize);
    ncclReduceScatter(send: In, receive: Out, count: usize, dtype: c_int, op: c_int, comm: Comm, stream: usize);
    ncclAlltoAll(send: In, receive: Out, count: usize, dtype: c_int, comm: Comm, stream: usize);
    ncclGather(send: In, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Comm, stream: usize);
    ncclScatter(send: In, receive: Out, count: usize, dtype: c_int, root: c_int, comm: Comm, stream: usize);
    ncclSend(send: In, count: usize, dtype: c_int, peer: c_int, comm: Comm, stream: usize);
    ncclRecv(receive: Out, count: usize, dtype: c_int, peer: c_int, comm: Comm, stream: usize);
    ncclMemAlloc(pointer: *mut usize, bytes: usize);
    ncclMemFree(pointer: usize);
    ncclCommRegister(comm: Comm, buffer: Out, bytes: usize, handle: *mut usize);
    ncclCommDeregister(comm: Comm, handle: usize);
    ncclCommWindowRegister(comm: Comm, buffer: Out, bytes: usize, window: *mut usize, flags: c_int);
    ncclCommWindowDeregister(comm: Comm, window: usize);
    ncclWinGetUserPtr(comm: Comm, window: usize, pointer: *mut usize);
    ncclGetLsaDevicePointer(window: usize, offset: usize, rank: c_int, pointer: *mut usize);
    ncclRedOpCreatePreMulSum(op: *mut c_int, scalar: Out, dtype: c_int, residence: c_int, comm: Comm);
    ncclRedOpDestroy(op: c_int, comm: Comm);
    ncclCommQueryProperties(comm: Comm, properties: *mut u8);
    ncclGroupSimulateEnd(simulation: *mut u8);
    ncclLLA2ACalcSlots(bytes: c_int, ranks: c_int);
    symmetra_nccl_served(comm: Comm);
}

/// The number of ranks, the rank and the stride of a team.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Team(pub(crate) [c_int; 3]);

pub(crate) fn team_world(comm: Comm) -> Team {
    let function = unsafe { library().get::<extern "C" fn(Comm) -> Team>(b"ncclTeamWorld") }.unwrap();
    function(comm)
}

/// The text of the last failure of the process.
pub(crate) fn last_error() -> String {
    let function = unsafe { library().get::<extern "C" fn(Comm) -> *const c_char>(b"ncclGetLastError") }.unwrap();
    unsafe { CStr::from_ptr(function(0)) }.to_string_lossy().into_owned()
}

pub(crate) fn error_string(code: c_int) -> String {
    let function = unsafe { library().get::<extern "C" fn(c_int) -> *const c_char>(b"ncclGetErrorString") }.unwrap();
    unsafe { CStr::from_ptr(function(code)) }.to_string_lossy().into_owned()
}

/// Checks that a call succeeded.
#[track_caller]
pub(crate) fn ok(code: c_int) {
    assert_eq!(code, 0, "{}", last_error());
}
