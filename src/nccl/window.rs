//! Memory that NCCL's symmetric kernels address on every rank.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use super::communicator::Communicator;
use super::session::NcclSession;
use super::symbols::WindowHandle;
use crate::error::{Error, Result};

/// `NCCL_WIN_COLL_SYMMETRIC`: equal offsets in the windows of all ranks contain corresponding data.
const SYMMETRIC: c_int = 1;

/// NCCL's own memory in a symmetric window (NCCL 2.27 or newer). Every rank has a window of equal size. Operations on
/// equal offsets in all windows take NCCL's fastest path.
///
/// Dropping it deregisters and frees the memory; the streams that use it must be done.
#[doc(hidden)] // for `symmetra-bench` alone
pub struct Window {
    session: Arc<NcclSession>,
    address: *mut c_void,
    handle: WindowHandle,
    bytes: usize,
}

// SAFETY: an address and a handle that any thread may use.
unsafe impl Send for Window {}
// SAFETY: an address and a handle that any thread may use.
unsafe impl Sync for Window {}

impl Window {
    /// Allocates and registers `bytes` bytes, contents undefined. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with an older NCCL, [`Error::InvalidArgument`] for 0 bytes, [`Error::Nccl`].
    pub fn new(communicator: &Communicator, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::invalid("the size of a window", bytes, "it must be at least 1"));
        }
        let session = communicator.0.clone();
        let symbols = session.library.symbols();
        let old = || Error::unsupported("a symmetric window", format!("{} is older than 2.27", session.library.name()));
        let allocate = symbols.ncclMemAlloc.ok_or_else(old)?;
        let register = symbols.ncclCommWindowRegister.ok_or_else(old)?;
        let mut address = std::ptr::null_mut();
        let _current = session.device.enter()?;
        // SAFETY: writes one address; the rank's device is current.
        let code = unsafe { allocate(&raw mut address, bytes) };
        session.library.check("ncclMemAlloc", code, std::ptr::null_mut())?;
        let place = Box::into_raw(Box::new(std::ptr::null_mut()));
        // SAFETY: the memory is NCCL's own, of this size. It and the place of the handle live until the call is done.
        let call = |comm| unsafe { register(comm, address, bytes, place, SYMMETRIC) };
        let registered = session.call("ncclCommWindowRegister", call);
        if let (Err(error), Err(_)) = (&registered, session.check()) {
            // The call was given up, not refused: NCCL's threads may still write the handle or use the memory. Both are
            // leaked.
            crate::log!(WARN, "{bytes} bytes that NCCL was registering are leaked: {error}");
            return Err(error.clone());
        }
        // SAFETY: created from the box above, which no thread writes any more.
        let handle = *unsafe { Box::from_raw(place) };
        // From here on `drop` releases the memory.
        let window = Self { session, address, handle, bytes };
        registered?;
        if handle.is_null() {
            return Err(Error::unsupported("a symmetric window", "NCCL does not support it on this machine"));
        }
        Ok(window)
    }

    /// The start address, for the device of this rank.
    pub fn as_raw(&self) -> *mut u8 {
        self.address.cast()
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Deregisters the window, unless the communicator has ended and its windows with it, and frees the memory.
    fn release(&self) -> Result<()> {
        let symbols = self.session.library.symbols();
        let registered = symbols.ncclCommWindowDeregister.filter(|_| !self.handle.is_null());
        let deregistered = registered.map_or(Ok(()), |deregister| {
            // SAFETY: registered by `new`, deregistered once.
            self.session.call("ncclCommWindowDeregister", |comm| unsafe { deregister(comm, self.handle) })
        });
        let _current = self.session.device.enter()?;
        let Some(free) = symbols.ncclMemFree else { return deregistered };
        // SAFETY: allocated by `new`, and no longer in a window.
        let code = unsafe { free(self.address) };
        deregistered.and(self.session.library.check("ncclMemFree", code, std::ptr::null_mut()))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.session.device.is_here() {
            return;
        }
        if let Err(error) = self.release() {
            crate::log!(WARN, "{self:?} of NCCL is leaked: {error}");
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Window({} bytes)", self.bytes)
    }
}
