//! The library itself.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cudarc::nccl::sys::{ncclComm_t, ncclUniqueId};

use super::symbols::Symbols;
use crate::error::{Error, Result};

/// What the dynamic loader finds where nobody says more.
const USUAL_NAME: &str = "libnccl.so.2";

/// `ncclSuccess`.
const SUCCESS: i32 = 0;

/// NCCL, loaded. Cheap to clone.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    symbols: Symbols,
    version: Version,
    /// What `symbols` point into.
    _library: libloading::Library,
}

/// A version of NCCL, like 2.28.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// From NCCL's number, in which the minor got a third digit with 2.9.
    fn from_number(number: u32) -> Self {
        match number {
            0..10_000 => Self { major: number / 1000, minor: number / 100 % 10, patch: number % 100 },
            _ => Self { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What the ranks of a communicator have in common: made by one, brought to all by the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub(super) ncclUniqueId);

impl UniqueId {
    /// Its size.
    pub const BYTES: usize = 128;

    /// To be sent.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.0.internal.map(|byte| byte as u8)
    }

    /// As it was sent.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(ncclUniqueId { internal: bytes.map(|byte| byte as c_char) })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows it may join.
        out.write_str("UniqueId")
    }
}

impl Library {
    /// Loads the library at this path, or the one that the dynamic loader finds as `libnccl.so.2`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it is missing or is no NCCL, with the loader's words.
    pub fn open(path: Option<&OsStr>) -> Result<Self> {
        let path = path.unwrap_or(OsStr::new(USUAL_NAME));
        // SAFETY: NCCL's initialisers ask nothing of the process; that the file is an NCCL is the
        // caller's word, as for every library.
        let library = unsafe { libloading::Library::new(path) };
        let library = library.map_err(|error| {
            // The loader's own words are behind the error's.
            let words = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::unsupported("NCCL", format!("{} cannot be loaded: {words}", Path::new(path).display()))
        })?;
        // SAFETY: the library is kept as long as what is looked up in it.
        let symbols = unsafe { Symbols::load(&library) }?;
        let mut number = 0;
        // SAFETY: writes the one number.
        let code = unsafe { (symbols.ncclGetVersion)(&raw mut number) };
        let version = Version::from_number(number.unsigned_abs());
        let this = Self(Arc::new(Inner { symbols, version, _library: library }));
        this.check("ncclGetVersion", code, std::ptr::null_mut())?;
        Ok(this)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// A new identity for one communicator; listens for its ranks in this process.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = ncclUniqueId { internal: [0; UniqueId::BYTES] };
        // SAFETY: writes the one id.
        let code = unsafe { (self.symbols().ncclGetUniqueId)(&raw mut id) };
        self.check("ncclGetUniqueId", code, std::ptr::null_mut())?;
        Ok(UniqueId(id))
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.0.symbols
    }

    /// Turns a result into an error, with what `comm`, which may be null, has to say.
    pub(super) fn check(&self, call: &str, code: i32, comm: ncclComm_t) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: takes any code.
        let words = unsafe { (self.symbols().ncclGetErrorString)(code) };
        // SAFETY: a static text.
        let words = unsafe { text(words) };
        // SAFETY: `comm` is null or live.
        let detail = unsafe { (self.symbols().ncclGetLastError)(comm) };
        // SAFETY: NCCL's text, copied before another call of this thread replaces it.
        let detail = unsafe { text(detail) };
        let detail = if detail.is_empty() { detail } else { format!(" ({})", detail.trim()) };
        Err(Error::Nccl { code, message: format!("{call}: {words}{detail}") })
    }
}

/// # Safety
/// Null or NUL-terminated.
unsafe fn text(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Library(NCCL {})", self.version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read() {
        for (number, text) in [(22809, "2.28.9"), (21400, "2.14.0"), (2804, "2.8.4")] {
            assert_eq!(Version::from_number(number).to_string(), text);
        }
        assert!(Version::from_number(22809) > Version::from_number(22700));
    }

    #[test]
    fn a_missing_library_is_a_typed_error() {
        for path in ["/nowhere/libnccl.so.2", "libc.so.6"] {
            let error = Library::open(Some(OsStr::new(path))).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
        let error = Library::open(Some(OsStr::new("/nowhere/libnccl.so.2"))).unwrap_err().to_string();
        assert!(error.contains("NCCL is not supported") && error.contains("/nowhere/libnccl.so.2"), "{error}");
    }

    #[test]
    fn an_id_travels() {
        let bytes: [u8; UniqueId::BYTES] = std::array::from_fn(|item| (item * 3) as u8);
        assert_eq!(UniqueId::from_bytes(&bytes).to_bytes(), bytes);
    }
}
