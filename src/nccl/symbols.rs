//! The library's functions. Results are integers: a closed enumeration would be undefined behaviour with a newer
//! library.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

use crate::loader::{symbols, words};

/// An `ncclComm_t`.
#[allow(non_camel_case_types)]
pub(super) type ncclComm_t = *mut c_void;

/// An `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub(super) struct ncclUniqueId {
    pub(super) internal: [c_char; 128],
}

/// A `cudaStream_t`.
pub(super) type NcclStream = *mut c_void;
/// An `ncclWindow_t`.
pub(super) type WindowHandle = *mut c_void;

/// An `ncclConfig_t` of NCCL 2.14, the first version with this struct. Newer libraries read `size` bytes.
#[repr(C)]
pub(super) struct NcclConfig {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

impl NcclConfig {
    /// Calls return at once; NCCL's threads continue them.
    pub(super) const NON_BLOCKING: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21400, blocking: 0 };
}

/// Queries the version, before functions that only newer versions have. Returns the result and the version number.
///
/// # Safety
/// `library` is an NCCL.
pub(super) unsafe fn version(library: &Library) -> Result<(i32, i32), String> {
    // SAFETY: this is the type in NCCL's header.
    let found = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> i32>(b"ncclGetVersion\0") };
    let call = found.map_err(|error| words(&error))?;
    let mut number = 0;
    // SAFETY: writes one number.
    let code = unsafe { call(&raw mut number) };
    Ok((code, number))
}

symbols! {
    always {
        ncclGetUniqueId: fn(*mut ncclUniqueId) -> i32;
        ncclGetErrorString: fn(i32) -> *const c_char;
        ncclGetLastError: fn(ncclComm_t) -> *const c_char;
        ncclCommInitRank: fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> i32;
        ncclCommInitRankConfig: fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *const NcclConfig) -> i32;
        ncclCommGetAsyncError: fn(ncclComm_t, *mut i32) -> i32;
        ncclCommFinalize: fn(ncclComm_t) -> i32;
        ncclCommDestroy: fn(ncclComm_t) -> i32;
        ncclCommAbort: fn(ncclComm_t) -> i32;
        ncclGroupStart: fn() -> i32;
        ncclGroupEnd: fn() -> i32;
        ncclAllReduce: fn(*const c_void, *mut c_void, usize, i32, i32, ncclComm_t, NcclStream) -> i32;
        ncclReduceScatter: fn(*const c_void, *mut c_void, usize, i32, i32, ncclComm_t, NcclStream) -> i32;
        ncclAllGather: fn(*const c_void, *mut c_void, usize, i32, ncclComm_t, NcclStream) -> i32;
        ncclReduce: fn(*const c_void, *mut c_void, usize, i32, i32, c_int, ncclComm_t, NcclStream) -> i32;
        ncclBroadcast: fn(*const c_void, *mut c_void, usize, i32, c_int, ncclComm_t, NcclStream) -> i32;
        ncclSend: fn(*const c_void, usize, i32, c_int, ncclComm_t, NcclStream) -> i32;
        ncclRecv: fn(*mut c_void, usize, i32, c_int, ncclComm_t, NcclStream) -> i32;
    }
    later {
        ncclMemAlloc: fn(*mut *mut c_void, usize) -> i32;
        ncclMemFree: fn(*mut c_void) -> i32;
        ncclCommWindowRegister: fn(ncclComm_t, *mut c_void, usize, *mut WindowHandle, c_int) -> i32;
        ncclCommWindowDeregister: fn(ncclComm_t, WindowHandle) -> i32;
    }
}
