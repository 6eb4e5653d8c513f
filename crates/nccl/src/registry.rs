//! The handles of communicators: addresses in one region. Every other address is a handle of another library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::abi::{self, Handle};
use crate::comm::Comm;
use crate::error::{CallFailure, Result};

/// The most communicators of a process at one time.
const ROOM: usize = 16_384;

/// The first word of a handle in use. NCCL's first word is another, so NCCL refuses the handle.
const MARK: u64 = 0x5359_4d4d_4e43_434c;

#[repr(C, align(128))]
struct HandleHeader {
    mark: AtomicU64,
    comm: RwLock<Option<Arc<Comm>>>,
}

static HEADERS: [HandleHeader; ROOM] =
    [const { HandleHeader { mark: AtomicU64::new(0), comm: RwLock::new(None) } }; ROOM];

/// The header to try first. A freed handle is used again only after all others.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The kind of a handle.
pub(crate) enum HandleKind {
    /// A communicator of this library.
    Comm(Arc<Comm>),
    /// An address in the region without a communicator.
    Freed,
    /// A handle of another library.
    Foreign,
}

/// A handle for `comm`.
pub(crate) fn insert(comm: Arc<Comm>) -> Result<Handle> {
    for _ in 0..ROOM {
        let index = NEXT.fetch_add(1, Ordering::Relaxed) % ROOM;
        let Some(header) = HEADERS.get(index) else { continue };
        let mut place = header.comm.write();
        if place.is_none() {
            *place = Some(comm);
            header.mark.store(MARK, Ordering::Relaxed);
            return Ok(std::ptr::from_ref(header).cast_mut().cast());
        }
    }
    Err(CallFailure::new(abi::SYSTEM_ERROR, format!("the process has {ROOM} communicators, the most at one time")))
}

/// The header at an address of the region. `Err` for an address outside the region.
fn header(handle: Handle) -> std::result::Result<Option<&'static HandleHeader>, ()> {
    let offset = (handle as usize).checked_sub(HEADERS.as_ptr() as usize).ok_or(())?;
    match HEADERS.get(offset / size_of::<HandleHeader>()) {
        Some(header) if offset.is_multiple_of(size_of::<HandleHeader>()) => Ok(Some(header)),
        Some(_) => Ok(None),
        None => Err(()),
    }
}

pub(crate) fn find(handle: Handle) -> HandleKind {
    match header(handle) {
        Err(()) => HandleKind::Foreign,
        Ok(header) => match header.and_then(|header| header.comm.read().clone()) {
            Some(comm) => HandleKind::Comm(comm),
            None => HandleKind::Freed,
        },
    }
}

/// Ends a handle.
pub(crate) fn remove(handle: Handle) -> Option<Arc<Comm>> {
    let header = header(handle).ok()??;
    header.mark.store(0, Ordering::Relaxed);
    header.comm.write().take()
}
