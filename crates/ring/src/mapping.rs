//! The ring's memory: a memfd that every party of one host maps.
//!
//! | offset in bytes | holds |
//! |---|---|
//! | 0 | [`FutexEvent`] `news`, for readers |
//! | 128 | [`FutexEvent`] `room`, for the writer |
//! | 256 | [`Losses`]: u32, how many; u32, the rank that the writer gave up, plus one |
//! | 384 | [`PartyState`], one a party: life, process number, place among the lost, the rank that it missed, plus one |
//! | then | [`CursorState`], one a party: u32, the chunk it reads next |
//! | then | [`Slot`], one a slot: stamp, kind, bytes of the chunk, bytes of the message |
//! | next multiple of 4096 | the chunks, each a multiple of 128 bytes apart |
//!
//! Every entry is 128 bytes: two lines, since processors fetch lines in pairs.
//!
//! Invariants. *Liveness*: a mapping lives as long as its `Mapping`, and the memfd is sealed against
//! shrinking. *Bounds*: offsets come from one [`RingLayout`], whose size the descriptor was checked to have.
//! *Exclusion*: everything but the chunks is atomic; the protocol orders all accesses to a chunk.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::futex_event::FutexEvent;
use super::protocol::{Board, CursorState, Losses, PartyState, Slot};
use symmetra::{Error, Result};

const LINE_BYTES: usize = 128;
const PAGE_BYTES: usize = 4096;
const NEWS: usize = 0;
const ROOM: usize = 128;
const LOSSES: usize = 256;
const PARTIES: usize = 384;

const _: () = {
    assert!(
        size_of::<FutexEvent>() == LINE_BYTES
            && size_of::<Losses>() == LINE_BYTES
            && size_of::<PartyState>() == LINE_BYTES
    );
    assert!(size_of::<CursorState>() == LINE_BYTES && size_of::<Slot>() == LINE_BYTES);
};

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingLayout {
    pub(super) parties: usize,
    pub(super) slots: usize,
    pub(super) chunk_bytes: usize,
}

impl RingLayout {
    fn cursors(&self) -> usize {
        PARTIES + self.parties * LINE_BYTES
    }

    fn slots_at(&self) -> usize {
        self.cursors() + self.parties * LINE_BYTES
    }

    fn chunks(&self) -> usize {
        (self.slots_at() + self.slots * LINE_BYTES).next_multiple_of(PAGE_BYTES)
    }

    fn chunk(&self, slot: usize) -> usize {
        self.chunks() + slot * self.chunk_bytes.next_multiple_of(LINE_BYTES)
    }

    fn bytes(&self) -> usize {
        self.chunk(self.slots).next_multiple_of(PAGE_BYTES)
    }
}

/// The ring's memory, mapped.
pub(super) struct RingMapping {
    address: NonNull<u8>,
    layout: RingLayout,
    fd: OwnedFd,
}

// SAFETY: shared memory that any thread may address; the protocol orders accesses to chunks, whichever thread makes
// them.
unsafe impl Send for RingMapping {}
// SAFETY: through `&Mapping` alone only atomics are touched; chunks need unsafe functions.
unsafe impl Sync for RingMapping {}

/// A descriptor to give to the others: of memory that is still empty.
pub(super) fn descriptor() -> Result<OwnedFd> {
    memfd_create("symmetra-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system("memfd_create"))
}

fn system(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::system(format_args!("{doing} of a ring"), &errno.into())
}

impl RingMapping {
    /// New memory: all zero, of a size that cannot change.
    pub(super) fn create(layout: RingLayout) -> Result<Self> {
        let fd = descriptor()?;
        ftruncate(&fd, layout.bytes() as u64).map_err(system("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&fd, seals).map_err(system("seal"))?;
        Self::map(fd, layout)
    }

    /// The memory another party made.
    pub(super) fn map(fd: OwnedFd, layout: RingLayout) -> Result<Self> {
        let bytes = fstat(&fd).map_err(system("fstat"))?.st_size;
        let sealed = fcntl_get_seals(&fd).map_err(system("read the seals"))?.contains(SealFlags::SHRINK);
        if bytes != layout.bytes() as i64 || !sealed {
            let limit = format!("it must have {} and be sealed against shrinking", layout.bytes());
            return Err(Error::invalid("the memory of a ring", format!("{bytes} bytes, sealed: {sealed}"), limit));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of Rust's.
        let address = unsafe { mmap(std::ptr::null_mut(), layout.bytes(), access, MapFlags::SHARED, &fd, 0) };
        let address = address.and_then(|address| NonNull::new(address.cast()).ok_or(Errno::FAULT));
        Ok(Self { address: address.map_err(system("mmap"))?, layout, fd })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn layout(&self) -> RingLayout {
        self.layout
    }

    pub(super) fn board(&self) -> Board<'_> {
        let RingLayout { parties, slots, .. } = self.layout;
        Board {
            // SAFETY: within the layout, aligned, atomic throughout, mapped for as long as `self`; any bits are valid.
            news: unsafe { self.at(NEWS).cast::<FutexEvent>().as_ref() },
            // SAFETY: as above.
            room: unsafe { self.at(ROOM).cast::<FutexEvent>().as_ref() },
            // SAFETY: as above.
            losses: unsafe { self.at(LOSSES).cast::<Losses>().as_ref() },
            // SAFETY: as above; this many entries follow each other.
            parties: unsafe { NonNull::slice_from_raw_parts(self.at(PARTIES).cast::<PartyState>(), parties).as_ref() },
            // SAFETY: as above.
            cursors: unsafe {
                NonNull::slice_from_raw_parts(self.at(self.layout.cursors()).cast::<CursorState>(), parties).as_ref()
            },
            // SAFETY: as above.
            slots: unsafe {
                NonNull::slice_from_raw_parts(self.at(self.layout.slots_at()).cast::<Slot>(), slots).as_ref()
            },
        }
    }

    /// Address of the entry or chunk that is `offset` bytes into the memory, an offset of the layout.
    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: offsets of the layout are inside the mapping (bounds).
        unsafe { self.address.add(offset) }
    }

    /// Address of the first `bytes` of a slot's chunk.
    ///
    /// # Errors
    /// [`Error::Internal`] for a slot that the ring does not have, and for more bytes than a chunk has.
    fn chunk(&self, slot: usize, bytes: usize) -> Result<NonNull<u8>> {
        let RingLayout { slots, chunk_bytes, .. } = self.layout;
        if slot >= slots || bytes > chunk_bytes {
            let has = format!("a ring of {slots} slots of {chunk_bytes} bytes");
            return Err(Error::internal(format!("{bytes} bytes of slot {slot} were asked for of {has}")));
        }
        Ok(self.at(self.layout.chunk(slot)))
    }

    /// Fills the chunk of a slot.
    ///
    /// # Errors
    /// [`Error::Internal`] for bytes that are not in a chunk.
    ///
    /// # Safety
    /// `slot` was claimed by this ring's one writer and is not published yet.
    pub(super) unsafe fn fill(&self, slot: usize, bytes: &[u8]) -> Result<()> {
        let chunk = self.chunk(slot, bytes.len())?;
        // SAFETY: inside the slot's chunk (bounds); no reader touches it until it is published (exclusion).
        unsafe { chunk.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Appends the first `bytes` of a slot's chunk to `message`.
    ///
    /// # Errors
    /// [`Error::Internal`] for bytes that are not in a chunk.
    ///
    /// # Safety
    /// `slot` was polled by a reader that has not released it.
    pub(super) unsafe fn append(&self, slot: usize, bytes: usize, message: &mut Vec<u8>) -> Result<()> {
        let chunk = self.chunk(slot, bytes)?;
        // SAFETY: inside the slot's chunk (bounds), which the writer does not touch until it is released (exclusion).
        let chunk = unsafe { NonNull::slice_from_raw_parts(chunk, bytes).as_ref() };
        message.extend_from_slice(chunk);
        Ok(())
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this, and no reference outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.layout.bytes()) };
    }
}

#[cfg(test)]
#[path = "../../../tests/metadata/unit/mapping.rs"]
mod tests;
