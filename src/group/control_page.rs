//! Control pages: one for each rank, shared by all ranks, addressable by the rank's device.
//!
//! A page holds the status block that the rank's kernels poll and write, the history of calls, and whether the rank has
//! left. Peers read the whole page and write one word, `abort`. Invariants: a mapping is as long as [`Page`] and lives
//! as long as its `PageMapping`; every field is atomic, so any rank may access it at any time; an all-zero page is
//! valid.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::MAX_WORLD_SIZE;
use super::history::History;
use super::identity::{Identity, LastHostCall};
use super::timeline::Timeline;
use crate::bootstrap::notice;
use crate::error::{Error, Result};
use crate::kernel::args;

/// Words that hold a report.
const REPORT_WORDS: usize = notice::MAX_BYTES.div_ceil(8);

/// The error that a rank found, for the peers that the rank stops. The rank writes it once, before it stops any peer.
#[repr(C)]
pub(super) struct ErrorReport {
    /// 0: no report; 1: being written; else one more than the number of bytes.
    state: AtomicU64,
    words: [AtomicU64; REPORT_WORDS],
}

impl ErrorReport {
    /// Writes `error`, unless a report exists. Returns when the report is complete.
    pub(super) fn write(&self, error: &Error) {
        if self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.state.load(Ordering::Acquire) == 1 {
                std::thread::yield_now();
            }
            return;
        }
        let bytes = notice::encode(error);
        for (word, eight) in self.words.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        self.state.store(bytes.len() as u64 + 1, Ordering::Release);
    }

    /// The error that rank `by`, the owner of this report, has written.
    pub(super) fn read(&self, by: usize) -> Option<Error> {
        let length = self.state.load(Ordering::Acquire).checked_sub(1).filter(|length| *length > 0)?;
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        Some(notice::decode(by, bytes.get(..usize::try_from(length).ok()?)?))
    }
}

/// The host's view of `args::Status`, followed by the history.
#[repr(C)]
pub(crate) struct Page {
    pub(super) abort: AtomicU32,
    pub(super) code: AtomicU32,
    /// Nonzero: the kernel that gave up does not end.
    pub(super) hold: AtomicU32,
    /// Nonzero: the call numbers of the rank's device differ from those of the history. No kernel accesses it.
    pub(super) unnumbered: AtomicU32,
    pub(super) op: AtomicU32,
    pub(super) peer: AtomicU32,
    pub(super) epoch: AtomicU32,
    unused: AtomicU32,
    pub(super) sequence: AtomicU64,
    pub(super) timeout_ns: AtomicU64,
    pub(super) theirs: [AtomicU64; 2],
    /// A wait of the rank's device, and how long the wait has lasted.
    pub(super) waiting: AtomicU64,
    pub(super) waited_ns: AtomicU64,
    pub(crate) history: History,
    /// Nonzero: the rank left, by this [`WayOut`].
    pub(super) left: AtomicU32,
    /// The number of calls that the rank had finished when it left. Valid if `left` is nonzero.
    pub(super) finished: AtomicU64,
    /// The number of calls of pairs that the rank enqueued, which are not in the history.
    pub(super) pairs: AtomicU64,
    /// The number of messages that the rank enqueued to each rank, and from each rank, outside of graphs.
    pub(super) sent: [AtomicU64; MAX_WORLD_SIZE],
    pub(super) received: [AtomicU64; MAX_WORLD_SIZE],
    /// Nonzero: the rank has messages in graphs, which are not counted.
    pub(super) uncounted: AtomicU32,
    /// The reason for which the rank stopped its peers.
    pub(super) report: ErrorReport,
    /// The number of first calls that the host knows to have ended. More may have ended.
    pub(super) ended: AtomicU64,
    /// The rank's exchanges outside of kernels.
    pub(super) host_call: LastHostCall,
    /// The times of the rank's calls.
    pub(super) timeline: Timeline,
}

/// The file of a page.
#[repr(C)]
struct Whole {
    page: Page,
    unused: [AtomicU64; (PAGE_BYTES - size_of::<Page>() - size_of::<Identity>()) / 8],
    identity: Identity,
}

const _: () = assert!(std::mem::offset_of!(Page, history) == size_of::<args::Status>());
const _: () = assert!(std::mem::offset_of!(Page, code) == std::mem::offset_of!(args::Status, code));
const _: () = assert!(std::mem::offset_of!(Page, sequence) == std::mem::offset_of!(args::Status, sequence));
const _: () = assert!(std::mem::offset_of!(Page, timeout_ns) == std::mem::offset_of!(args::Status, timeout_ns));
const _: () = assert!(std::mem::offset_of!(Page, hold) == std::mem::offset_of!(args::Status, hold));
const _: () = assert!(std::mem::offset_of!(Page, op) == std::mem::offset_of!(args::Status, op));
const _: () = assert!(std::mem::offset_of!(Page, waiting) == std::mem::offset_of!(args::Status, waiting));
const _: () = assert!(std::mem::offset_of!(Page, theirs) == std::mem::offset_of!(args::Status, theirs));

const _: () = assert!(size_of::<Whole>() == PAGE_BYTES);

/// Bytes of a mapping: whole pages of the largest common page size.
pub(crate) const PAGE_BYTES: usize = (size_of::<Page>() + size_of::<Identity>()).next_multiple_of(64 << 10);

/// The name of the file of a page, which `/proc` shows.
pub(crate) const PAGE_NAME: &str = "symmetra-page";

/// The reason for which a rank is stopped; part of the abort word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A rank called abort.
    Abort,
    /// A rank is gone.
    Lost,
    /// A wait for a rank passed its deadline.
    Failed,
    /// The calls of two ranks differ.
    Differed,
}

/// The fault that a kernel found, and the rank it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The kernel waited for this rank until the deadline.
    Late(usize),
    /// This rank's call differs.
    Different(usize),
}

/// How a rank left a group without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum WayOut {
    Departed = 1,
    Dropped = 2,
    /// Without a wait for its calls. Unfinished calls gave up.
    Abandoned = 3,
}

/// The abort word: the cause, the rank that reported it, and the rank that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) cause: Cause,
    pub(super) by: usize,
    pub(super) culprit: usize,
}

impl Stop {
    fn word(self) -> u32 {
        let cause = match self.cause {
            Cause::Abort => 1,
            Cause::Lost => 2,
            Cause::Failed => 3,
            Cause::Differed => 4,
        };
        cause | (self.by as u32) << 8 | (self.culprit as u32) << 16
    }

    fn from_word(word: u32) -> Option<Self> {
        let cause = match word & 0xff {
            0 => return None,
            2 => Cause::Lost,
            3 => Cause::Failed,
            4 => Cause::Differed,
            _ => Cause::Abort,
        };
        Some(Self { cause, by: (word >> 8 & 0xff) as usize, culprit: (word >> 16 & 0xff) as usize })
    }
}

impl Page {
    /// Stops the rank of this page. The first stop is kept.
    pub(super) fn stop(&self, stop: Stop) {
        let _ = self.abort.compare_exchange(0, stop.word(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// The stop of the rank of this page, if any.
    pub(super) fn stopped(&self) -> Option<Stop> {
        Stop::from_word(self.abort.load(Ordering::Acquire))
    }

    /// The fault that kernels of this page's rank found, if any.
    pub(super) fn finding(&self) -> Option<Finding> {
        let code = self.code.load(Ordering::Acquire);
        let peer = self.peer.load(Ordering::Relaxed) as usize;
        match code {
            args::kStatusTimeout => Some(Finding::Late(peer)),
            args::kStatusMismatch => Some(Finding::Different(peer)),
            _ => None,
        }
    }

    /// Whether the rank of this page has left the group without a failure.
    pub(super) fn has_left(&self) -> bool {
        self.way_out().is_some()
    }

    /// How the rank of this page has left the group without a failure.
    pub(super) fn way_out(&self) -> Option<WayOut> {
        match self.left.load(Ordering::Acquire) {
            0 => None,
            1 => Some(WayOut::Departed),
            2 => Some(WayOut::Dropped),
            _ => Some(WayOut::Abandoned),
        }
    }

    /// Records that the rank of this page leaves after its first `finished` calls. The first way out is kept. Only the rank
    /// itself writes, from one thread at a time.
    pub(super) fn leave(&self, way: WayOut, finished: u64) {
        if self.left.load(Ordering::Relaxed) == 0 {
            self.finished.store(finished, Ordering::Relaxed);
            self.left.store(way as u32, Ordering::Release);
        }
    }

    /// The number of calls that the rank has finished, after its work has ended. `None` if it gave up in work without a
    /// number in the history: messages between pairs, or graphs that a stream's owner captured.
    pub(super) fn finished_calls(&self) -> Option<u64> {
        let numbered =
            self.unnumbered.load(Ordering::Relaxed) == 0 && self.op.load(Ordering::Relaxed) != args::kOpPairs;
        match self.code.load(Ordering::Acquire) {
            0 => Some(self.history.enqueued()),
            // The call in which the rank gave up is not finished.
            _ => numbered.then(|| self.sequence.load(Ordering::Relaxed).min(self.history.enqueued().saturating_sub(1))),
        }
    }

    /// Whether `other`, the page of rank `rank`, which has left, lacks a message with which a message of this page's rank,
    /// `own`, would end: one to receive, or one to send if the other rank abandoned its calls.
    pub(super) fn misses_message(&self, own: usize, other: &Self, rank: usize) -> bool {
        let receives = count(&self.received, rank) > count(&other.sent, own);
        let sends = count(&self.sent, rank) > count(&other.received, own);
        self.counts_with(other) && (receives || sends && other.way_out() == Some(WayOut::Abandoned))
    }

    /// The number of messages that this page's rank, `own`, has sent to rank `peer`, of the page `other`, and that `peer` has
    /// not received. `None` if one of the two has messages that are not counted.
    pub(super) fn unreceived(&self, peer: usize, other: &Self, own: usize) -> Option<u64> {
        let sent = count(&self.sent, peer).saturating_sub(count(&other.received, own));
        self.counts_with(other).then_some(sent)
    }

    /// Whether all messages between the ranks of two pages are counted.
    fn counts_with(&self, other: &Self) -> bool {
        [self, other].iter().all(|page| page.uncounted.load(Ordering::Relaxed) == 0)
    }

    /// Whether the rank of this page has enqueued a call, and so has finished loading.
    pub(super) fn has_begun(&self) -> bool {
        self.pairs.load(Ordering::Relaxed) > 0 || self.history.enqueued() > 0
    }

    /// Whether no failure has occurred. Every call runs this check; it costs two loads.
    pub(super) fn healthy(&self) -> bool {
        self.abort.load(Ordering::Relaxed) == 0 && self.code.load(Ordering::Relaxed) == 0
    }
}

/// The messages of one direction between a page's rank and `peer`.
fn count(counts: &[AtomicU64; MAX_WORLD_SIZE], peer: usize) -> u64 {
    counts.get(peer).map_or(0, |count| count.load(Ordering::Relaxed))
}

pub(crate) struct PageMapping {
    address: NonNull<Whole>,
    fd: OwnedFd,
}

// SAFETY: the mapping is plain shared memory that any thread may address; every field of the page is atomic.
unsafe impl Send for PageMapping {}
// SAFETY: the mapping is shared memory of atomic fields, which any thread may access.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    /// A new file of this name, filled with zeros.
    pub(super) fn create(name: &str) -> Result<Self> {
        let system = |doing: &str, error: Errno| Error::system(doing, &error.into());
        let fd = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|error| system("memfd_create", error))?;
        ftruncate(&fd, PAGE_BYTES as u64).map_err(|error| system("ftruncate", error))?;
        Self::map(fd)
    }

    pub(super) fn map(fd: OwnedFd) -> Result<Self> {
        let bytes = rustix::fs::fstat(&fd).map_err(|error| Error::system("fstat", &error.into()))?.st_size;
        if bytes < PAGE_BYTES as i64 {
            return Err(Error::invalid("a peer's control page", bytes, format!("it must have {PAGE_BYTES} bytes")));
        }
        // SAFETY: a new mapping at an address that the kernel chooses aliases no memory of Rust.
        let address = unsafe {
            mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        };
        let address = address.and_then(|address| NonNull::new(address.cast()).ok_or(Errno::FAULT));
        let address = address.map_err(|error| Error::system("mmap of a control page", &error.into()))?;
        Ok(Self { address, fd })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another mapping of the same page.
    pub(super) fn again(&self) -> Result<Self> {
        let fd = fcntl_dupfd_cloexec(&self.fd, 0).map_err(|error| Error::system("duplicate", &error.into()))?;
        Self::map(fd)
    }

    /// The number by which all processes of this host know the page.
    pub(super) fn number(&self) -> Result<u64> {
        Ok(rustix::fs::fstat(&self.fd).map_err(|error| Error::system("fstat", &error.into()))?.st_ino)
    }

    /// The owner of the page.
    pub(super) fn identity(&self) -> &Identity {
        &self.whole().identity
    }

    fn whole(&self) -> &Whole {
        // SAFETY: `self` keeps the page mapped; it is page-aligned, valid for all bit patterns and atomic throughout.
        unsafe { self.address.as_ref() }
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }
}

impl std::ops::Deref for PageMapping {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.whole().page
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this range, and no reference outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abort_word_keeps_what_it_carries() {
        for cause in [Cause::Abort, Cause::Lost, Cause::Failed, Cause::Differed] {
            for (by, culprit) in [(0, 0), (3, 15), (15, 1)] {
                let stop = Stop { cause, by, culprit };
                assert_eq!(Stop::from_word(stop.word()), Some(stop));
            }
        }
        assert_eq!(Stop::from_word(0), None);
    }
}
