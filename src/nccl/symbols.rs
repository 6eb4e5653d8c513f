//! The functions of the library. Results are integers: a closed enumeration would be undefined
//! behaviour with a newer library.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

use cudarc::nccl::sys::{ncclComm_t, ncclUniqueId};
use libloading::Library;

use crate::error::{Error, Result};

/// A `cudaStream_t`.
pub(super) type Stream = *mut c_void;
/// An `ncclWindow_t`.
pub(super) type Handle = *mut c_void;

macro_rules! symbols {
    (
        always { $($name:ident: fn($($arg:ty),*) -> $result:ty;)* }
        since_2_27 { $($newer:ident: fn($($newer_arg:ty),*) -> $newer_result:ty;)* }
    ) => {
        /// Looked up once. What older libraries lack is `None`.
        pub(super) struct Symbols {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> $result,)*
            $(pub(super) $newer: Option<unsafe extern "C" fn($($newer_arg),*) -> $newer_result>,)*
        }

        impl Symbols {
            /// # Safety
            /// `library` is an NCCL, and outlives every use of the result.
            pub(super) unsafe fn load(library: &Library) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        // SAFETY: NCCL's header declares it so.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|error| Error::unsupported("this NCCL", error.to_string()))?
                    },)*
                    $($newer: {
                        // SAFETY: as above.
                        let found = unsafe { library.get(concat!(stringify!($newer), "\0").as_bytes()) };
                        found.ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}

symbols! {
    always {
        ncclGetVersion: fn(*mut c_int) -> i32;
        ncclGetUniqueId: fn(*mut ncclUniqueId) -> i32;
        ncclGetErrorString: fn(i32) -> *const c_char;
        ncclGetLastError: fn(ncclComm_t) -> *const c_char;
        ncclCommInitRank: fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> i32;
        ncclCommGetAsyncError: fn(ncclComm_t, *mut i32) -> i32;
        ncclCommDestroy: fn(ncclComm_t) -> i32;
        ncclCommAbort: fn(ncclComm_t) -> i32;
        ncclGroupStart: fn() -> i32;
        ncclGroupEnd: fn() -> i32;
        ncclAllReduce: fn(*const c_void, *mut c_void, usize, i32, i32, ncclComm_t, Stream) -> i32;
        ncclReduceScatter: fn(*const c_void, *mut c_void, usize, i32, i32, ncclComm_t, Stream) -> i32;
        ncclAllGather: fn(*const c_void, *mut c_void, usize, i32, ncclComm_t, Stream) -> i32;
        ncclBroadcast: fn(*const c_void, *mut c_void, usize, i32, c_int, ncclComm_t, Stream) -> i32;
        ncclSend: fn(*const c_void, usize, i32, c_int, ncclComm_t, Stream) -> i32;
        ncclRecv: fn(*mut c_void, usize, i32, c_int, ncclComm_t, Stream) -> i32;
    }
    since_2_27 {
        ncclMemAlloc: fn(*mut *mut c_void, usize) -> i32;
        ncclMemFree: fn(*mut c_void) -> i32;
        ncclCommWindowRegister: fn(ncclComm_t, *mut c_void, usize, *mut Handle, c_int) -> i32;
        ncclCommWindowDeregister: fn(ncclComm_t, Handle) -> i32;
    }
}
