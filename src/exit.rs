//! Actions that must happen before the process ends.
#![allow(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    // A function of the C library. It keeps a function pointer, which is valid while the process or the library with the
    // function is loaded; unloading that library runs the call.
    safe fn atexit(call: extern "C" fn()) -> c_int;
}

/// Calls `call` when the process ends normally. Actions registered last run first, so libraries that are loaded by now
/// and register their own exit handlers are still usable. Logs `otherwise` if no action can be registered.
pub(crate) fn before(call: extern "C" fn(), otherwise: &str) {
    if atexit(call) != 0 {
        crate::log!(WARN, "{otherwise}: the process takes no more exit handlers");
    }
}
