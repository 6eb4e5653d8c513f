//! Values that a graph of the runtime holds, until the graph and its launches have ended.
#![allow(unsafe_code)]

use std::ffi::c_void;

use super::{Kept, reaper};
use crate::error::Result;
use crate::sys::device as sys;

/// A value for C++, which returns the value through `release` once.
pub(super) fn keepalive(kept: Kept) -> Result<sys::Keepalive> {
    reaper::start()?;
    Ok(sys::Keepalive { data: Box::into_raw(Box::new(kept)).cast(), release })
}

/// Called from any thread, where device calls are not allowed. It only passes the value to the reaper.
extern "C" fn release(data: *mut c_void) {
    // SAFETY: `data` came from `keepalive`, and C++ calls this once.
    let kept = unsafe { Box::from_raw(data.cast::<Kept>()) };
    reaper::hand_over(*kept);
}
