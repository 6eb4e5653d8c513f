//! Memory that NCCL's symmetric kernels reach in every rank.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use super::communicator::{Communicator, Inner};
use super::symbols::Handle;
use crate::error::{Error, Result};

/// `NCCL_WIN_COLL_SYMMETRIC`: the same offset in the windows of all ranks holds the same data.
const SYMMETRIC: c_int = 1;

/// Memory of NCCL's own in a symmetric window (NCCL 2.27 or newer). Every rank has one of the same
/// size; operations on the same offsets in all of them take NCCL's fastest path.
///
/// Dropped, it is deregistered and freed; the streams that use it must be done.
pub struct Window {
    communicator: Arc<Inner>,
    address: *mut c_void,
    handle: Handle,
    bytes: usize,
}

// SAFETY: an address and a handle that any thread may use.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Allocates and registers `bytes` bytes. Collective; blocks. Contents start undefined.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by an older NCCL, [`Error::InvalidArgument`] for 0 bytes, [`Error::Nccl`].
    pub fn new(communicator: &Communicator, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::invalid("the size of a window", bytes, "it must be at least 1"));
        }
        let inner = communicator.0.clone();
        let symbols = inner.library.symbols();
        let old = || Error::unsupported("a symmetric window", format!("NCCL is {}, not 2.27", inner.library.version()));
        let allocate = symbols.ncclMemAlloc.ok_or_else(old)?;
        let register = symbols.ncclCommWindowRegister.ok_or_else(old)?;
        inner.bind()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: writes the one address; the context of the rank's device is current.
        inner.check("ncclMemAlloc", unsafe { allocate(&raw mut address, bytes) })?;
        // From here on `drop` gives back what there is.
        let mut window = Self { communicator: inner, address, handle: std::ptr::null_mut(), bytes };
        let comm = window.communicator.comm();
        // SAFETY: the memory is NCCL's own, of so many bytes, and lives as long as the window.
        let code = unsafe { register(comm, address, bytes, &raw mut window.handle, SYMMETRIC) };
        window.communicator.check("ncclCommWindowRegister", code)?;
        if window.handle.is_null() {
            return Err(Error::unsupported("a symmetric window", "NCCL has none on this machine"));
        }
        Ok(window)
    }

    /// Where it starts, for the device of this rank.
    pub fn as_raw(&self) -> *mut u8 {
        self.address.cast()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn release(&self) -> Result<()> {
        let inner = &self.communicator;
        inner.bind()?;
        if let (Some(deregister), false) = (inner.library.symbols().ncclCommWindowDeregister, self.handle.is_null()) {
            // SAFETY: registered by `new`, deregistered once.
            inner.check("ncclCommWindowDeregister", unsafe { deregister(inner.comm(), self.handle) })?;
        }
        let Some(free) = inner.library.symbols().ncclMemFree else { return Ok(()) };
        // SAFETY: allocated by `new`, in no window any more.
        inner.check("ncclMemFree", unsafe { free(self.address) })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::warn!(window = ?self, %error, "a window of NCCL is leaked");
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Window({} bytes)", self.bytes)
    }
}
