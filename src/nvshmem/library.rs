//! The loaded NVSHMEM library and its functions. Results are integers: a closed enumeration would be undefined behaviour
//! with a newer library.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::loader::{self, symbols};
use crate::variables::{NVSHMEM_LIBRARY, optional};

/// The name of the library for the dynamic loader.
const USUAL: &str = "libnvshmem_host.so.3";
/// The major version whose functions and structures are those declared here.
const MAJOR: i32 = 3;

/// NVSHMEM, loaded. Cheap to clone.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    symbols: Symbols,
    version: Version,
    name: String,
}

/// A version of NVSHMEM, for example 3.4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: i32,
    /// Minor number.
    pub minor: i32,
    /// Patch number.
    pub patch: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An `nvshmemx_uniqueid_t`. Rank 0 creates it; all ranks initialise with it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ShmemUniqueId {
    version: c_int,
    internal: [c_char; 124],
}

/// An `nvshmemx_uniqueid_args_t`.
#[repr(C)]
struct UniqueIdArgs {
    version: c_int,
    id: *const ShmemUniqueId,
    rank: c_int,
    ranks: c_int,
}

/// An `nvshmemx_init_args_t`, in its first version.
#[repr(C)]
struct InitArgs {
    version: c_int,
    unique_id: UniqueIdArgs,
    content: [c_char; 96],
}

/// An `nvshmemx_init_attr_t`, in its first version, which every release since 3.0 accepts.
#[repr(C)]
pub(super) struct InitAttr {
    version: c_int,
    mpi_comm: *mut c_void,
    args: InitArgs,
}

// The sizes that NVSHMEM's headers assert.
const _: () = {
    assert!(size_of::<ShmemUniqueId>() == ShmemUniqueId::BYTES);
    assert!(size_of::<UniqueIdArgs>() == 24);
    assert!(size_of::<InitArgs>() == 128);
    assert!(size_of::<InitAttr>() == 144);
};

/// The value that NVSHMEM's headers write into the field `version` of the first version of `T`.
const fn first<T>() -> c_int {
    (1 << 16) + size_of::<T>() as c_int
}

impl ShmemUniqueId {
    pub(super) const BYTES: usize = 128;

    pub(super) fn empty() -> Self {
        Self { version: first::<Self>(), internal: [0; 124] }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        self.version.to_ne_bytes().into_iter().chain(self.internal.map(|byte| byte as u8)).collect()
    }

    /// Refuses an id whose layout is unknown to this build: its version is that of another structure.
    pub(super) fn check_version(&self) -> Result<()> {
        match (self.version, first::<Self>()) {
            (version, known) if version == known => Ok(()),
            (version, known) => {
                let reason =
                    format!("the library's unique ids are of version {version:#x}, but they must be {known:#x}");
                Err(Error::unsupported("NVSHMEM", reason))
            }
        }
    }

    /// The id with these bytes, which come from [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, internal) = bytes.split_first_chunk::<4>()?;
        let internal: [u8; 124] = internal.try_into().ok()?;
        Some(Self { version: c_int::from_ne_bytes(*version), internal: internal.map(|byte| byte as c_char) })
    }
}

impl InitAttr {
    pub(super) fn empty() -> Self {
        let unique_id = UniqueIdArgs { version: first::<UniqueIdArgs>(), id: std::ptr::null(), rank: -1, ranks: -1 };
        let args = InitArgs { version: first::<InitArgs>(), unique_id, content: [0; 96] };
        Self { version: first::<Self>(), mpi_comm: std::ptr::null_mut(), args }
    }
}

/// `NVSHMEMX_INIT_WITH_UNIQUEID`.
pub(super) const INIT_WITH_UNIQUE_ID: c_uint = 1 << 3;
/// `NVSHMEM_STATUS_IS_INITIALIZED`; larger numbers are initialised states too.
pub(super) const IS_INITIALISED: c_int = 2;

symbols! {
    always {
        nvshmemx_vendor_get_version_info: fn(*mut c_int, *mut c_int, *mut c_int);
        nvshmemx_init_status: fn() -> c_int;
        nvshmemx_get_uniqueid: fn(*mut ShmemUniqueId) -> c_int;
        nvshmemx_set_attr_uniqueid_args: fn(c_int, c_int, *const ShmemUniqueId, *mut InitAttr) -> c_int;
        nvshmemx_hostlib_init_attr: fn(c_uint, *mut InitAttr) -> c_int;
        nvshmemx_hostlib_finalize: fn();
        nvshmem_my_pe: fn() -> c_int;
        nvshmem_n_pes: fn() -> c_int;
        nvshmem_malloc: fn(usize) -> *mut c_void;
        nvshmem_free: fn(*mut c_void);
        nvshmem_ptr: fn(*const c_void, c_int) -> *mut c_void;
    }
    later {
        nvshmemx_buffer_register_symmetric: fn(*mut c_void, usize, c_int) -> *mut c_void;
        nvshmemx_buffer_unregister_symmetric: fn(*mut c_void, usize) -> c_int;
    }
}

/// Converts a result of NVSHMEM to an error.
pub(super) fn succeed(call: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::Device { code: code.into(), message: format!("{call} of NVSHMEM failed") }),
    }
}

impl Library {
    /// Loads the library at `path`, else the library that `SYMMETRA_NVSHMEM_LIBRARY` names, else `libnvshmem_host.so.3`
    /// from the path of the dynamic loader. The library is never unloaded, because its threads may outlive a session.
    /// This does not initialise NVSHMEM.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the library is missing, lacks a function (with its name) or is of another major version than 3;
    /// [`Error::InvalidArgument`] for a variable that is not text.
    pub fn find(path: Option<&OsStr>) -> Result<Self> {
        let named = match path {
            Some(path) => Some(path.to_owned()),
            None => optional(NVSHMEM_LIBRARY)?.map(OsString::from),
        };
        match named {
            Some(path) => Self::load(&path),
            None => Self::load(OsStr::new(USUAL)).map_err(|error| match error {
                Error::Unsupported { what, reason } => {
                    Error::unsupported(what, format!("{reason} ({NVSHMEM_LIBRARY} may name one)"))
                }
                error => error,
            }),
        }
    }

    fn load(path: &OsStr) -> Result<Self> {
        const WHAT: &str = "NVSHMEM";
        let shown = Path::new(path).display().to_string();
        // SAFETY: NVSHMEM's initialisers have no requirements on the process. The caller promises, as for every
        // library, that the file is an NVSHMEM.
        let library = unsafe { loader::open(path) }.map_err(|reason| Error::unsupported(WHAT, reason))?;
        // SAFETY: the library stays loaded.
        let symbols = unsafe { Symbols::load(&library) };
        let symbols =
            symbols.map_err(|error| Error::unsupported(WHAT, format!("{shown} lacks a function: {error}")))?;
        let mut version = Version { major: 0, minor: 0, patch: 0 };
        let Version { major, minor, patch } = &mut version;
        // SAFETY: writes three numbers; needs no initialisation.
        unsafe { (symbols.nvshmemx_vendor_get_version_info)(major, minor, patch) };
        if version.major != MAJOR {
            let reason =
                format!("{shown} is version {version}, but it must be {MAJOR}.0.0 or newer, below {}.0.0", MAJOR + 1);
            return Err(Error::unsupported(WHAT, reason));
        }
        Ok(Self(Arc::new(Inner { symbols, version, name: format!("{WHAT} {version}, {shown}") })))
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// A description for messages: the version, and the name by which it was loaded.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether NVSHMEM is initialised in this process, by any code.
    pub(super) fn is_initialised(&self) -> bool {
        // SAFETY: reads a number of the library; needs no initialisation.
        unsafe { (self.symbols().nvshmemx_init_status)() >= IS_INITIALISED }
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.0.symbols
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Library({})", self.name())
    }
}
