//! The functions of libzmq, found when they are first needed: symmetra is built and runs without it.
//!
//! Names and types are those of `zmq.h`, whose binary interface is that of `libzmq.so.5` since 4.0.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_short, c_void};

use once_cell::sync::OnceCell;

use symmetra::{Error, Result};

/// `zmq_msg_t`.
#[repr(C, align(8))]
pub(super) struct RawMessage(pub(super) [u8; 64]);

/// `zmq_pollitem_t`.
#[repr(C)]
pub(super) struct RawPoll {
    pub(super) socket: *mut c_void,
    pub(super) fd: c_int,
    pub(super) events: c_short,
    pub(super) ready: c_short,
}

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $out:ty)?;)*) => {
        /// The functions used here.
        pub(super) struct ZmqLibrary {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)*
            // Last, so that the library is dropped after its functions.
            _library: libloading::Library,
        }

        impl ZmqLibrary {
            fn load() -> std::result::Result<Self, libloading::Error> {
                // SAFETY: libzmq's initialisers have no preconditions.
                let library = unsafe { libloading::Library::new(NAME) }?;
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of zmq.h.
                        *unsafe { library.get(concat!("zmq_", stringify!($name)).as_bytes()) }?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    errno: fn() -> c_int;
    strerror: fn(c_int) -> *const c_char;
    has: fn(*const c_char) -> c_int;
    ctx_new: fn() -> *mut c_void;
    ctx_shutdown: fn(*mut c_void) -> c_int;
    ctx_term: fn(*mut c_void) -> c_int;
    socket: fn(*mut c_void, c_int) -> *mut c_void;
    close: fn(*mut c_void) -> c_int;
    setsockopt: fn(*mut c_void, c_int, *const c_void, usize) -> c_int;
    getsockopt: fn(*mut c_void, c_int, *mut c_void, *mut usize) -> c_int;
    bind: fn(*mut c_void, *const c_char) -> c_int;
    connect: fn(*mut c_void, *const c_char) -> c_int;
    socket_monitor: fn(*mut c_void, *const c_char, c_int) -> c_int;
    poll: fn(*mut RawPoll, c_int, c_long) -> c_int;
    msg_init: fn(*mut RawMessage) -> c_int;
    msg_init_size: fn(*mut RawMessage, usize) -> c_int;
    msg_copy: fn(*mut RawMessage, *mut RawMessage) -> c_int;
    msg_send: fn(*mut RawMessage, *mut c_void, c_int) -> c_int;
    msg_recv: fn(*mut RawMessage, *mut c_void, c_int) -> c_int;
    msg_close: fn(*mut RawMessage) -> c_int;
    msg_data: fn(*mut RawMessage) -> *mut c_void;
    msg_size: fn(*const RawMessage) -> usize;
    msg_more: fn(*const RawMessage) -> c_int;
    msg_gets: fn(*const RawMessage, *const c_char) -> *const c_char;
    curve_keypair: fn(*mut c_char, *mut c_char) -> c_int;
    z85_decode: fn(*mut u8, *const c_char) -> *mut u8;
}

const NAME: &str = "libzmq.so.5";
/// `EINTR`.
pub(super) const INTERRUPTED: c_int = 4;

/// The library, loaded once and for good.
///
/// [`Error::Unsupported`] when there is no library, or a library without CURVE.
pub(super) fn library() -> Result<&'static ZmqLibrary> {
    static LIBRARY: OnceCell<ZmqLibrary> = OnceCell::new();
    LIBRARY.get_or_try_init(|| {
        let what = "ZeroMQ (readers on other hosts, Overflow::ZeroMq)";
        let library = ZmqLibrary::load().map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::unsupported(what, format!("install libzmq 4 (Debian: libzmq5): {why}"))
        })?;
        // SAFETY: a string that ends in zero.
        if unsafe { (library.has)(c"curve".as_ptr()) } != 1 {
            return Err(Error::unsupported(what, format!("this machine's {NAME} was built without CURVE")));
        }
        Ok(library)
    })
}

impl ZmqLibrary {
    /// The result of a call, which is made again when a signal came before it did anything. Calls look for their
    /// socket's commands first, and that may be interrupted also where they do not wait.
    pub(super) fn uninterrupted(&self, mut call: impl FnMut() -> c_int) -> c_int {
        loop {
            let code = call();
            // SAFETY: no preconditions.
            if code >= 0 || unsafe { (self.errno)() } != INTERRUPTED {
                return code;
            }
        }
    }

    /// The error of the call before, on this thread.
    pub(super) fn failure(&self, doing: &str) -> Error {
        // SAFETY: no preconditions.
        let code = unsafe { (self.errno)() };
        // SAFETY: no preconditions.
        let words = unsafe { (self.strerror)(code) };
        // SAFETY: a constant string of the library.
        let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
        Error::System { errno: code, message: format!("{doing}: {words}") }
    }
}
