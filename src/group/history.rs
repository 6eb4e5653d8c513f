//! The calls that a rank enqueued last: a ring with one writer. Peers read it, also after the writer's death.
//!
//! Each entry is a seqlock. The writer clears the stamp, writes the fields, then sets the new stamp. A reader accepts
//! an entry only when the stamp was equal before and after. The two fences make a reader that saw a new field also see
//! that the old stamp is gone.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use super::call::Call;

#[cfg(loom)]
const ENTRIES: usize = 1;
#[cfg(not(loom))]
const ENTRIES: usize = 256;

/// The last calls of one rank. Lives in memory shared with its peers; all zero is empty.
#[repr(C)]
pub(crate) struct History {
    enqueued: AtomicU64,
    entries: [Entry; ENTRIES],
}

#[repr(C)]
struct Entry {
    /// Number of the call plus one; 0 while the entry is being written.
    stamp: AtomicU64,
    bytes: AtomicU64,
    descriptor: AtomicU64,
}

impl History {
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// Adds a call. Only the rank itself writes, from one thread at a time.
    pub(crate) fn push(&self, call: Call) {
        let number = self.enqueued.load(Ordering::Relaxed);
        let entry = self.entry(number);
        entry.stamp.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.bytes.store(call.bytes, Ordering::Relaxed);
        entry.descriptor.store(call.descriptor, Ordering::Relaxed);
        entry.stamp.store(number + 1, Ordering::Release);
        self.enqueued.store(number + 1, Ordering::Release);
    }

    /// The call with this number, or `None` if it is overwritten or being written.
    pub(crate) fn get(&self, number: u64) -> Option<Call> {
        let entry = self.entry(number);
        let before = entry.stamp.load(Ordering::Acquire);
        let call =
            Call { bytes: entry.bytes.load(Ordering::Relaxed), descriptor: entry.descriptor.load(Ordering::Relaxed) };
        fence(Ordering::Acquire);
        let after = entry.stamp.load(Ordering::Relaxed);
        (before == after && before == number + 1).then_some(call)
    }

    fn entry(&self, number: u64) -> &Entry {
        &self.entries[(number % ENTRIES as u64) as usize]
    }

    #[cfg(test)]
    fn empty() -> Self {
        let entry = || Entry { stamp: AtomicU64::new(0), bytes: AtomicU64::new(0), descriptor: AtomicU64::new(0) };
        Self { enqueued: AtomicU64::new(0), entries: std::array::from_fn(|_| entry()) }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/history.rs"]
mod tests;
