//! The other direction: symmetric buffers of a communicator, for NVSHMEM's device functions.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::heap::{Heap, HeapBlock, HeldBlock};
use crate::bootstrap::hello::tell;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::memory::{Place, SymmetricBuffer, WithView};
use crate::types::Element;
use crate::variables::{NVSHMEM_CUMEM_GRANULARITY, optional};

/// The name of the mapped memory in errors.
const MEMORY: &str = "symmetric memory in the heap of NVSHMEM";
/// NVSHMEM's granularity if the environment does not set it.
const GRANULARITY: u64 = 512 << 20;

/// A communicator's memory in the heap of NVSHMEM. Dropping it does not block; the memory leaves NVSHMEM's heap in a
/// later collective call of the session, after every rank has dropped its own.
pub struct Mapped {
    _held: HeldBlock,
    communicator: Communicator,
    address: usize,
}

impl Mapped {
    /// Maps the arena of `communicator`. Collective.
    pub(super) fn new(heap: &Arc<Heap>, communicator: &Communicator) -> Result<Self> {
        const NAME: &str = "nvshmemx_buffer_register_symmetric";
        let calls = &heap.calls;
        let (start, bytes) = communicator.allocation();
        // Also compares the sizes.
        heap.wish(Some(bytes as u64))?;
        heap.check_all(NAME)?;
        let start = start as usize;
        let group = calls.group();
        let lacks = || Error::unsupported(NAME, format!("{} has no such function", calls.library.name()));
        let own = calls.library.symbols().nvshmemx_buffer_register_symmetric.ok_or_else(lacks);
        let own = own.and_then(|register| check_whole(bytes as u64).map(|()| register));
        let register = group.exchange(|mesh, deadline| mesh.agree("map symmetric memory", own, deadline))?;
        let address = calls.together(NAME, move |_| {
            // SAFETY: a whole allocation, which the block keeps alive by its communicator (liveness).
            Ok(unsafe { register(start as *mut c_void, bytes, 0) } as usize)
        })?;
        let held = (address != 0)
            .then(|| heap.hold(HeapBlock { address, bytes, registered: true }, Some(communicator.clone())));
        let told = group.exchange(|mesh, deadline| tell(mesh, "to map symmetric memory", &held.is_some(), deadline))?;
        let refused = || Error::unsupported(MEMORY, "NVSHMEM refuses to register it");
        match (held, told.iter().position(|mapped| !mapped)) {
            (Some(_held), None) => Ok(Self { _held, communicator: communicator.clone(), address }),
            (Some(_), Some(rank)) => Err(calls.give_up(Error::Peer { rank, message: refused().to_string() })),
            // NVSHMEM destroys its own heap if it cannot map memory.
            (None, _) => Err(calls.give_up(refused())),
        }
    }

    /// The address of a symmetric buffer's elements in NVSHMEM's heap, for NVSHMEM's device functions. Valid until this
    /// object or the buffer is dropped. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a buffer of another communicator.
    pub fn address_of<T: Element>(&self, buffer: &SymmetricBuffer<T>) -> Result<*mut T> {
        Ok(self.address_at(buffer.view_of().place)? as *mut T)
    }

    /// The address of the memory at this place.
    pub(crate) fn address_at(&self, place: Place) -> Result<usize> {
        match place {
            Place::Symmetric { group, offset_bytes } if group == self.communicator.group().id() => {
                Ok(self.address + offset_bytes as usize)
            }
            _ => Err(Error::invalid("the buffer", format!("{place:?}"), "it is not of the mapped communicator")),
        }
    }
}

/// Refuses an arena whose size NVSHMEM would round up to its granularity: the mapping would fail, and destroy NVSHMEM's
/// heap.
fn check_whole(arena_bytes: u64) -> Result<()> {
    let set = optional(NVSHMEM_CUMEM_GRANULARITY)?;
    let unit = match &set {
        None => GRANULARITY,
        Some(text) => parse_bytes(text).ok_or_else(|| {
            Error::invalid(
                NVSHMEM_CUMEM_GRANULARITY,
                text,
                "it must be a number of bytes above 0, optionally followed by K, M or G",
            )
        })?,
    };
    if arena_bytes.is_multiple_of(unit) {
        return Ok(());
    }
    let reason = format!(
        "the communicator has {arena_bytes} bytes of memory, which are no multiple of NVSHMEM's granularity of {unit}: \
         {NVSHMEM_CUMEM_GRANULARITY}=2097152 makes the granularity that of the device"
    );
    Err(Error::unsupported(MEMORY, reason))
}

/// A size in the syntax that NVSHMEM reads from the environment.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

impl fmt::Debug for Mapped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mapped({:?} at {:#x})", self.communicator, self.address)
    }
}
