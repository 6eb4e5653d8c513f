//! The real NCCL: found at first need, and called by its own names.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;

use libloading::Library;
use once_cell::sync::OnceCell;
use symmetra::internal::{Wanted, open_real};

use crate::abi::{self, Code, Handle, UniqueId};
use crate::error::{CallFailure, Result};
use crate::variables;

/// The real library. It is loaded once and never unloaded, because its threads may outlive its users.
pub(crate) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceCell<Result<ManuallyDrop<Library>>> = OnceCell::new();
    LIBRARY.get_or_init(load).as_deref().map_err(Clone::clone)
}

/// Loads the file that `SYMMETRA_NCCL_LIBRARY` names, or else the first that the search finds.
fn load() -> Result<ManuallyDrop<Library>> {
    let named = variables::own("LIBRARY").map(PathBuf::from);
    let files = named.map_or_else(|| Wanted::NCCL.files(), |file| vec![file]);
    let mut refused = Vec::new();
    for file in files {
        // SAFETY: an NCCL's initialisers have no requirements on the process.
        match unsafe { open_real(file.as_os_str()) } {
            Ok(Some(library)) => return Ok(library),
            Ok(None) => refused.push(format!("{} is symmetra's", file.display())),
            Err(reason) => refused.push(reason),
        }
    }
    let reasons = if refused.is_empty() { Wanted::NCCL.places() } else { refused.join("; ") };
    Err(CallFailure::usage(format!("the call needs the real NCCL: {reasons} (SYMMETRA_NCCL_LIBRARY names its file)")))
}

/// A function of the real library, looked up at first use.
pub(crate) struct Symbol {
    name: &'static str,
    address: OnceCell<Result<usize>>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, address: OnceCell::new() }
    }

    /// The address of the function.
    ///
    /// # Errors
    /// A text without a real library, or for a library that lacks the function.
    pub(crate) fn address(&self) -> Result<usize> {
        let look_up = || {
            // SAFETY: the address is read, not called.
            let found = unsafe { library()?.get::<*const c_void>(self.name.as_bytes()) };
            found
                .map(|symbol| *symbol as usize)
                .map_err(|_| CallFailure::usage(format!("the real NCCL has no {}", self.name)))
        };
        self.address.get_or_init(look_up).clone()
    }
}

/// Calls a function of the real library by its name, with arguments of the types in NCCL's header.
macro_rules! pass_on {
    ($name:ident($($arg:ident: $type:ty),*)) => {
        pass_on!($name($($arg: $type),*) -> $crate::abi::Code)
    };
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {{
        static SYMBOL: $crate::real::Symbol = $crate::real::Symbol::new(stringify!($name));
        type Function = unsafe extern "C" fn($($type),*) -> $result;
        SYMBOL.address().map(|address| {
            // SAFETY: the function of the real library with this name has the type that NCCL's header declares.
            let function = unsafe { std::mem::transmute::<usize, Function>(address) };
            // SAFETY: the arguments of the caller, who keeps NCCL's contract.
            unsafe { function($($arg),*) }
        })
    }};
}
pub(crate) use pass_on;

/// The failure for a code of the real library.
fn checked(what: &str, code: Code) -> Result<Code> {
    match code {
        abi::SUCCESS | abi::IN_PROGRESS => Ok(code),
        code => Err(CallFailure::new(code, format!("the real NCCL's {what}: {}", words(code)))),
    }
}

/// The real library's text of a code.
fn words(code: Code) -> String {
    static SYMBOL: Symbol = Symbol::new("ncclGetErrorString");
    let Ok(address) = SYMBOL.address() else { return format!("code {code}") };
    // SAFETY: the type of the function in NCCL's header.
    let function = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(Code) -> *const c_char>(address) };
    // SAFETY: any code is allowed.
    let text = unsafe { function(code) };
    // SAFETY: a static string that ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(crate) fn group_start() -> Result<Code> {
    checked("ncclGroupStart", pass_on!(ncclGroupStart())?)
}

pub(crate) fn group_end() -> Result<Code> {
    checked("ncclGroupEnd", pass_on!(ncclGroupEnd())?)
}

/// The version number of the real library.
pub(crate) fn version() -> Result<c_int> {
    let mut version = 0;
    let place = &raw mut version;
    checked("ncclGetVersion", pass_on!(ncclGetVersion(place: *mut c_int))?).map(|_| version)
}

/// A new id of the real library.
pub(crate) fn unique_id() -> Result<UniqueId> {
    let mut id = UniqueId::from([0; 128]);
    let place = &raw mut id;
    checked("ncclGetUniqueId", pass_on!(ncclGetUniqueId(place: *mut UniqueId))?).map(|_| id)
}

/// Opens a communicator of the real library on the current device. `config` is empty for the default.
pub(crate) fn init(ranks: c_int, id: UniqueId, rank: c_int, config: &[u8]) -> Result<(Handle, Code)> {
    let mut comm = std::ptr::null_mut();
    let config = if config.is_empty() { std::ptr::null() } else { config.as_ptr() };
    let place = &raw mut comm;
    let opened = pass_on!(ncclCommInitRankConfig(
        place: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *const u8
    ));
    let code = checked("ncclCommInitRankConfig", opened?)?;
    Ok((comm, code))
}

/// Splits a communicator of the real library, at which all its ranks call this function. `out` is written when the state of
/// `parent` is no longer in progress. `config` is empty for that of the parent.
///
/// # Safety
/// `out` may be written until then.
pub(crate) unsafe fn split(parent: Handle, [color, key]: [c_int; 2], out: *mut Handle, config: &[u8]) -> Result<Code> {
    let config = if config.is_empty() { std::ptr::null() } else { config.as_ptr() };
    let split = pass_on!(ncclCommSplit(
        parent: Handle, color: c_int, key: c_int, out: *mut Handle, config: *const u8
    ));
    checked("ncclCommSplit", split?)
}

/// Success or progress of a communicator of the real library.
///
/// # Errors
/// The failure of the communicator.
pub(crate) fn state(comm: Handle) -> Result<Code> {
    let mut state = abi::SUCCESS;
    let place = &raw mut state;
    checked("ncclCommGetAsyncError", pass_on!(ncclCommGetAsyncError(comm: Handle, place: *mut Code))?)?;
    checked("communicator", state)
}

/// The number of ranks of a communicator of the real library.
pub(crate) fn count(comm: Handle) -> Result<usize> {
    let mut count: c_int = 0;
    let place = &raw mut count;
    checked("ncclCommCount", pass_on!(ncclCommCount(comm: Handle, place: *mut c_int))?)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Ends a communicator of the real library and its calls under way.
pub(crate) fn abort(comm: Handle) -> Result<Code> {
    checked("ncclCommAbort", pass_on!(ncclCommAbort(comm: Handle))?)
}
