//! Memory that NCCL's symmetric kernels reach in every rank.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use super::communicator::Communicator;
use super::session::Session;
use super::symbols::Handle;
use crate::error::{Error, Result};

/// `NCCL_WIN_COLL_SYMMETRIC`: the same offset in the windows of all ranks holds the same data.
const SYMMETRIC: c_int = 1;

/// Memory of NCCL's own in a symmetric window (NCCL 2.27 or newer). Every rank has one of the same
/// size; operations on the same offsets in all of them take NCCL's fastest path.
///
/// Dropped, it is deregistered and freed; the streams that use it must be done.
#[doc(hidden)] // for `symmetra bench` alone
pub struct Window {
    session: Arc<Session>,
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
        let session = communicator.0.clone();
        let symbols = session.library.symbols();
        let old = || Error::unsupported("a symmetric window", format!("{} is older than 2.27", session.library.name()));
        let allocate = symbols.ncclMemAlloc.ok_or_else(old)?;
        let register = symbols.ncclCommWindowRegister.ok_or_else(old)?;
        let mut address = std::ptr::null_mut();
        session.device.make_current()?;
        // SAFETY: writes the one address; the rank's device is current.
        let code = unsafe { allocate(&raw mut address, bytes) };
        session.library.check("ncclMemAlloc", code, std::ptr::null_mut())?;
        let place = Box::into_raw(Box::new(std::ptr::null_mut()));
        // SAFETY: the memory is NCCL's own, of so many bytes, and both it and the place of the handle live until
        // the call is done.
        let call = |comm| unsafe { register(comm, address, bytes, place, SYMMETRIC) };
        let registered = session.call("ncclCommWindowRegister", call);
        if let (Err(error), Err(_)) = (&registered, session.check()) {
            // It was given up rather than refused: threads of NCCL's may be at it still, and write the handle or
            // use the memory at any time. Both are left to them.
            tracing::warn!(bytes, %error, "memory that NCCL was registering is leaked");
            return Err(error.clone());
        }
        // SAFETY: of the box above, which nobody writes any more.
        let handle = *unsafe { Box::from_raw(place) };
        // From here on `drop` gives back what there is.
        let window = Self { session, address, handle, bytes };
        registered?;
        if handle.is_null() {
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

    /// Deregisters it, unless the communicator has ended and its windows with it, and frees it.
    fn release(&self) -> Result<()> {
        let symbols = self.session.library.symbols();
        let registered = symbols.ncclCommWindowDeregister.filter(|_| !self.handle.is_null());
        let deregistered = registered.map_or(Ok(()), |deregister| {
            // SAFETY: registered by `new`, deregistered once.
            self.session.call("ncclCommWindowDeregister", |comm| unsafe { deregister(comm, self.handle) })
        });
        self.session.device.make_current()?;
        let Some(free) = symbols.ncclMemFree else { return deregistered };
        // SAFETY: allocated by `new`, in no window any more.
        let code = unsafe { free(self.address) };
        deregistered.and(self.session.library.check("ncclMemFree", code, std::ptr::null_mut()))
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
