//! Failures: a code of NCCL and a text.

use std::ffi::{c_char, c_int};
use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use symmetra::Error;

use crate::abi::{self, Code};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallFailure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

pub(crate) type Result<T = ()> = std::result::Result<T, CallFailure>;

impl CallFailure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// A call at a time or on a communicator for which NCCL does not allow the call.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(abi::INVALID_USAGE, text)
    }

    /// A failed step of the system or of the other ranks' meeting.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        Self::new(abi::SYSTEM_ERROR, text)
    }
}

/// A value outside its limit.
pub(crate) fn argument(what: impl Display, value: impl Display, limit: impl Display) -> CallFailure {
    CallFailure::new(abi::INVALID_ARGUMENT, format!("{what} is {value}: {limit}"))
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidArgument { .. } => abi::INVALID_ARGUMENT,
            Error::Unsupported { .. } | Error::Mismatch { .. } | Error::Closed | Error::NotRegistered { .. } => {
                abi::INVALID_USAGE
            }
            Error::Device { .. } | Error::OutOfMemory { .. } => abi::UNHANDLED_CUDA_ERROR,
            Error::System { .. } | Error::Bootstrap { .. } => abi::SYSTEM_ERROR,
            Error::Timeout { .. } | Error::PeerLost { .. } | Error::Peer { .. } | Error::Aborted { .. } => {
                abi::REMOTE_ERROR
            }
            _ => abi::INTERNAL_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

/// Bytes of the text of the last failure, with the final zero.
const ROOM: usize = 1024;

/// The text of the last failure of the process. The address stays, as that of `ncclGetLastError` does.
static LAST: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];

static WRITER: Mutex<()> = Mutex::new(());

/// Keeps the text of a failed call of `function`.
pub(crate) fn keep(function: &str, failure: &CallFailure) {
    let _one = WRITER.lock();
    let text = format!("{function}: {}", failure.text);
    let end = (0..ROOM).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = text.as_bytes().get(..end).unwrap_or(text.as_bytes());
    for (place, byte) in LAST.iter().zip(bytes.iter().copied().chain([0])) {
        place.store(byte, Ordering::Relaxed);
    }
}

/// The text of the last failure, empty before the first.
pub(crate) fn last() -> *const c_char {
    LAST.as_ptr().cast()
}

/// The text of a code.
pub(crate) fn words(code: c_int) -> &'static std::ffi::CStr {
    match code {
        abi::SUCCESS => c"no error",
        abi::UNHANDLED_CUDA_ERROR => c"a call of the device runtime failed (ncclGetLastError has the text)",
        abi::SYSTEM_ERROR => c"a call of the system failed, or ranks did not meet (ncclGetLastError has the text)",
        abi::INTERNAL_ERROR => c"internal error (ncclGetLastError has the text)",
        abi::INVALID_ARGUMENT => c"invalid argument (ncclGetLastError has the text)",
        abi::INVALID_USAGE => c"invalid usage (ncclGetLastError has the text)",
        abi::REMOTE_ERROR => c"a rank is lost or late, or has aborted (ncclGetLastError has the text)",
        abi::IN_PROGRESS => c"an operation of the communicator is in progress",
        _ => c"a code of a newer NCCL",
    }
}
