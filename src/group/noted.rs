//! The calls and messages that this rank enqueues, counted in its control page.

use std::sync::atomic::Ordering;

use super::{Call, Group};

impl Group {
    /// Adds a call to this rank's history. One thread at a time.
    #[inline]
    pub(crate) fn note(&self, call: Call) {
        self.0.health.pages[self.0.rank].history.push(call);
    }

    /// Counts calls of pairs that this rank enqueues. One thread at a time.
    pub(crate) fn note_pairs(&self, calls: u64) {
        self.0.health.pages[self.0.rank].pairs.fetch_add(calls, Ordering::Relaxed);
    }

    /// Counts a message that this rank enqueues to or from `peer`. One thread at a time.
    pub(crate) fn note_message(&self, peer: usize, sends: bool) {
        let page = self.0.health.own();
        let counts = if sends { &page.sent } else { &page.received };
        if let Some(count) = counts.get(peer) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From here on the messages of this rank are not counted: a graph has some, and runs any number of times.
    pub(crate) fn lose_messages(&self) {
        self.0.health.own().uncounted.store(1, Ordering::Relaxed);
    }

    /// Whether `rank` has enqueued a call.
    pub(crate) fn has_begun(&self, rank: usize) -> bool {
        self.0.health.pages.get(rank).is_some_and(|page| page.has_begun())
    }

    /// From here on the call numbers of this rank's history differ from those of the device that compares them: a call
    /// that the owner of a stream captures is recorded once, and runs any number of times.
    pub(crate) fn lose_count(&self) {
        self.0.health.pages[self.0.rank].unnumbered.store(1, Ordering::Relaxed);
    }
}
