//! What has to happen before the process ends.
#![allow(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    // Of the C library. It keeps a function, which is there for as long as the process is, or the library that it is
    // part of, whose unloading calls it.
    safe fn atexit(call: extern "C" fn()) -> c_int;
}

/// Calls `call` when the process ends normally. What was registered last runs first: libraries that are loaded by
/// now, which end themselves in the same way, are still there. Where no more is taken, `otherwise` is logged.
pub(crate) fn before(call: extern "C" fn(), otherwise: &str) {
    if atexit(call) != 0 {
        tracing::warn!("{otherwise}: the process takes no more exit handlers");
    }
}
