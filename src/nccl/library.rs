//! The loaded NCCL or RCCL library.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::symbols::{self, Symbols, ncclComm_t, ncclUniqueId};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::loader::search::{Wanted, open_real};
use crate::types::Dtype;

/// `ncclSuccess`.
pub(super) const SUCCESS: i32 = 0;

/// The first version whose communicators open without blocking the caller.
const OLDEST: Version = Version { major: 2, minor: 14, patch: 0 };

/// The first version that reduces 8-bit floats.
const FIRST_WITH_F8: Version = Version { major: 2, minor: 24, patch: 0 };
/// The least major compute capability of NVIDIA GPUs on which NCCL reduces 8-bit floats.
const F8_CAPABILITY: u32 = 9;

/// NCCL or RCCL, loaded. Cheap to clone.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    symbols: Symbols,
    version: Version,
    name: String,
}

/// A version of NCCL, for example 2.28.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

impl Version {
    /// Decodes NCCL's version number, in which the minor number got a third digit with 2.9.
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

/// The identity of a communicator. One rank creates it; the caller sends it to all ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub(super) ncclUniqueId);

impl UniqueId {
    /// Size in bytes.
    pub const BYTES: usize = 128;

    /// The bytes to send to other ranks.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.0.internal.map(|byte| byte as u8)
    }

    /// The identity with these bytes, which come from [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(ncclUniqueId { internal: bytes.map(|byte| byte as c_char) })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not printed: every process that knows the identity may join.
        out.write_str("UniqueId")
    }
}

impl Library {
    /// Loads the library at `path`, or else the first of these: an object of this process, the package next to a loaded
    /// PyTorch, a file in `LD_LIBRARY_PATH` or in the folders of the system. NCCL is for NVIDIA GPUs, and RCCL, which has
    /// equal functions, for AMD GPUs. **RCCL has not been run.** A library that serves NCCL's names with symmetra is not
    /// used, also at `path`. The library is never unloaded, because its threads may outlive the last communicator.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for ranks on the CPU; if the library is missing (with all files that were tried), lacks a
    /// function (with its name) or is older than 2.14. [`Error::Nccl`] if the library does not report its version.
    pub fn find(kind: DeviceKind, path: Option<&OsStr>) -> Result<Self> {
        let (what, wanted) = match kind {
            DeviceKind::Cuda => ("NCCL", Wanted::NCCL),
            DeviceKind::Hip => ("RCCL", Wanted::RCCL),
            DeviceKind::Host => return Err(Error::unsupported("NCCL on the CPU", "it works on GPUs only")),
        };
        if let Some(library) = path.map(|path| Self::open(what, path)).transpose()?.flatten() {
            return Ok(library);
        }
        let mut reasons = vec![wanted.places()];
        for file in wanted.files() {
            match Self::open(what, file.as_os_str()) {
                Ok(Some(library)) => return Ok(library),
                Ok(None) => reasons.push(format!("{} serves the names of {what} with symmetra", file.display())),
                Err(Error::Unsupported { what: _, reason }) => reasons.push(reason),
                Err(error) => return Err(error),
            }
        }
        Err(Error::unsupported(what, reasons.join("; ")))
    }

    /// `None` if the file serves NCCL's names with symmetra.
    fn open(what: &str, path: &OsStr) -> Result<Option<Self>> {
        let shown = Path::new(path).display().to_string();
        // SAFETY: NCCL's initialisers have no requirements on the process. The caller promises, as for every library,
        // that the file is an NCCL.
        let library = unsafe { open_real(path) }.map_err(|reason| Error::unsupported(what, reason))?;
        let Some(library) = library else { return Ok(None) };
        let lacks = |error: String| Error::unsupported(what, format!("{shown} lacks a function: {error}"));
        // SAFETY: the library stays loaded.
        let (code, number) = unsafe { symbols::version(&library) }.map_err(lacks)?;
        let version = Version::from_number(number.unsigned_abs());
        if code == SUCCESS && version < OLDEST {
            let reason = format!("{shown} is version {version}, but it must be {OLDEST} or newer");
            return Err(Error::unsupported(what, reason));
        }
        // SAFETY: the library stays loaded.
        let symbols = unsafe { Symbols::load(&library) }.map_err(lacks)?;
        let this = Self(Arc::new(Inner { symbols, version, name: format!("{what} {version}, {shown}") }));
        this.check("ncclGetVersion", code, std::ptr::null_mut())?;
        Ok(Some(this))
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// A description for messages: the version, and the name by which it was loaded.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the library reduces a type on a device. Data of any type can be moved.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 8-bit floats before version 2.24, and on NVIDIA GPUs before compute capability 9.0.
    pub fn reduces(&self, dtype: Dtype, device: &Device) -> Result<()> {
        if !dtype.is_f8() {
            return Ok(());
        }
        let refused = |reason| Err(Error::unsupported(format!("a reduction of {dtype} by {}", self.name()), reason));
        let (major, minor) = device.compute_capability();
        if self.version() < FIRST_WITH_F8 {
            return refused(format!("8-bit floats need version {FIRST_WITH_F8} or newer"));
        }
        if device.kind() == DeviceKind::Cuda && major < F8_CAPABILITY {
            return refused(format!(
                "{device:?} has compute capability {major}.{minor}, but it must be {F8_CAPABILITY}.0 or higher"
            ));
        }
        Ok(())
    }

    /// Creates an identity for one communicator. A thread of this process listens for its ranks.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = ncclUniqueId { internal: [0; UniqueId::BYTES] };
        // SAFETY: writes one id.
        let code = unsafe { (self.symbols().ncclGetUniqueId)(&raw mut id) };
        self.check("ncclGetUniqueId", code, std::ptr::null_mut())?;
        Ok(UniqueId(id))
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.0.symbols
    }

    /// Converts a result to an error, with NCCL's own description of `comm`, which is null or live.
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
        Err(Error::Nccl { code, message: format!("{call}: {words}{detail}, in {}", self.name()) })
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
        write!(out, "Library({})", self.name())
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
    fn an_id_travels() {
        let bytes: [u8; UniqueId::BYTES] = std::array::from_fn(|item| (item * 3) as u8);
        assert_eq!(UniqueId::from_bytes(&bytes).to_bytes(), bytes);
    }
}
