//! The calls and messages that this rank enqueues, counted in its control page.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::{EnqueuedCall, Group};
use crate::bootstrap::host::coarse_ns;
#[cfg(feature = "metrics")]
use crate::error::Operation;
use crate::error::Result;

impl Group {
    /// Adds a call to this rank's history. One thread at a time.
    #[inline]
    pub(crate) fn note(&self, call: EnqueuedCall) {
        self.enter_in_history(&call, coarse_ns() & !1);
    }

    /// Adds the calls of a graph that is launched to this rank's history. One thread at a time.
    pub(crate) fn note_launch(&self, calls: &[EnqueuedCall]) {
        let moment = coarse_ns() | 1;
        calls.iter().for_each(|call| self.enter_in_history(call, moment));
    }

    #[inline]
    fn enter_in_history(&self, call: &EnqueuedCall, moment: u64) {
        #[cfg(feature = "metrics")]
        self.count(call);
        self.0.health.pages[self.0.rank].history.push(*call, moment);
    }

    /// Writes this rank's history into a folder.
    pub(crate) fn dump(&self, folder: &Path) -> Result<PathBuf> {
        self.0.health.dump(folder)
    }

    /// The number of calls in this rank's history.
    pub(crate) fn noted(&self) -> u64 {
        self.0.health.own().history.enqueued()
    }

    /// Records for observers that the first `calls` calls of this rank have ended.
    pub(crate) fn note_ended(&self, calls: u64) {
        self.0.health.own().ended.fetch_max(calls, Ordering::Relaxed);
    }

    /// Counts a call for the recorder of the program.
    #[cfg(feature = "metrics")]
    fn count(&self, call: &EnqueuedCall) {
        let operation =
            Operation::from_number(call.op()).map_or_else(|| call.op().to_string(), |known| known.to_string());
        let labels = [("operation", operation), ("group", self.label().to_string())];
        metrics::counter!("symmetra_calls", &labels).increment(1);
        metrics::counter!("symmetra_call_bytes", &labels).increment(call.bytes);
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
