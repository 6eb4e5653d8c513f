//! The liveness of the ranks, and the flags of control pages as the error that every later call returns.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::control_page::{Cause, Finding, Page, PageMapping, Stop, WayOut};
use super::{Deadlines, ParallelGroup};
use crate::device::Allocation;
use crate::error::{Error, Operation, Result};
use crate::kernel::args;
use crate::variables::report_consequence;

/// How long a rank that gave up waits for the report of the rank for which it waited. That rank may have begun its own
/// wait later, by the scheduling delay of a busy processor.
pub(crate) const REPORT: Duration = Duration::from_millis(250);

/// The ranks' liveness and the group's failure.
pub(super) struct Health {
    pub(super) rank: usize,
    /// Maps this rank's page for the device; dropped before the page is unmapped.
    pub(super) _pinned: Allocation,
    pub(super) pages: Vec<PageMapping>,
    pub(super) failure: OnceCell<Error>,
    pub(super) deadlines: Deadlines,
    /// Whether kernels compare the calls of all ranks.
    pub(super) check_calls: bool,
    /// Whether this rank logs no warning about ranks for which it waits.
    pub(super) silent: bool,
    /// The folder of the record that a failure writes.
    pub(super) dump_folder: Option<PathBuf>,
    /// Bytes of each rank's heap.
    pub(super) heap_bytes: u64,
    /// Channels for signals of the program's kernels.
    pub(super) heap_channels: u32,
    /// For each rank, the number of first calls that were found to be equal to this rank's.
    pub(super) equal: Vec<AtomicU64>,
    /// Whether a rank has left regularly.
    pub(super) departed: AtomicBool,
    /// The parallel group that this group is, for messages.
    pub(super) place: OnceCell<ParallelGroup>,
}

impl Health {
    pub(super) fn own(&self) -> &Page {
        &self.pages[self.rank]
    }

    /// Whether no failure has occurred so far. Does not determine the cause of a failure.
    pub(super) fn is_well(&self) -> bool {
        self.own().healthy() && self.failure.get().is_none()
    }

    /// Returns the group's failure. Costs two loads if there is none.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_well() {
            return Ok(());
        }
        Err(self.first(|| self.diagnose()))
    }

    /// Returns the group's failure, including unequal calls of the ranks. Costs some loads per rank.
    pub(super) fn confirm(&self) -> Result<()> {
        self.check()?;
        self.differing().or_else(|| self.missent()).map_or(Ok(()), |error| Err(self.fail(error)))
    }

    /// Makes `error` the group's failure unless there is one, and stops every rank. Returns the group's failure.
    pub(super) fn fail(&self, error: Error) -> Error {
        let failure = self.keep(error);
        self.tell(&failure);
        failure
    }

    /// Makes `error` the failure on this rank unless there is one, without notifying peers. Returns the failure.
    pub(super) fn keep(&self, error: Error) -> Error {
        self.first(|| error)
    }

    /// The failure, which is `cause` unless there is one. If the cause is another rank, it is reported to the launcher.
    fn first(&self, cause: impl FnOnce() -> Error) -> Error {
        let mut fresh = false;
        let failure = self.failure.get_or_init(|| {
            let error = self.placed(cause());
            let of_itself = self.own().stopped().is_some_and(|stop| stop.culprit == self.rank);
            if !of_itself {
                report_consequence(&error);
            }
            fresh = true;
            error
        });
        if fresh {
            self.dump_failure(failure);
        }
        failure.clone()
    }

    /// An error with the name of a parallel group, and world ranks.
    pub(super) fn placed(&self, error: Error) -> Error {
        match self.place.get() {
            Some(ParallelGroup { name, world, numbers_errors: true }) => {
                error.in_group(name, world, self.own().stopped().map(|stop| stop.by))
            }
            _ => error,
        }
    }

    /// The error to announce when this rank drops the group. `None` after this rank's own abort or stop, of which all
    /// peers were notified.
    pub(super) fn reason_to_leave(&self) -> Option<Error> {
        let of_itself = |stop: Stop| stop.cause == Cause::Abort && stop.by == self.rank;
        match self.failure.get() {
            None if self.own().stopped().is_some_and(of_itself) => None,
            _ => self.check().err(),
        }
    }

    /// Records that `rank` disconnected: it died, failed, or left regularly. In the last case only calls that it did
    /// not make fail.
    pub(super) fn hung_up(&self, rank: usize) {
        match self.pages[rank].has_left() {
            true => {
                self.departed.store(true, Ordering::Relaxed);
                self.heed_departed();
            }
            false => self.lost(rank),
        }
    }

    /// Stops the group if this rank has enqueued calls that a departed rank has not finished, or waits for a message that a
    /// departed rank has not enqueued.
    pub(super) fn heed_departed(&self) {
        if !self.departed.load(Ordering::Relaxed) {
            return;
        }
        let calls = self.own().history.enqueued();
        let missed = |(rank, page): (usize, &PageMapping)| {
            page.has_left()
                && (page.finished.load(Ordering::Relaxed) < calls || self.own().misses_message(self.rank, page, rank))
        };
        if let Some(rank) = self.pages.iter().enumerate().position(missed) {
            self.lost(rank);
        }
    }

    /// Fails if a rank has left regularly: a new call would wait for it in vain. Costs one load.
    pub(super) fn all_here(&self) -> Result<()> {
        if !self.departed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let left = |page: &PageMapping| page.has_left();
        self.pages.iter().position(left).map_or(Ok(()), |rank| Err(self.fail(self.gone(rank))))
    }

    /// As [`all_here`](Self::all_here), for work that needs only `peer`. A rank that does not exist counts as present.
    pub(super) fn is_here(&self, peer: usize) -> Result<()> {
        match self.is_missing(peer) {
            true => Err(self.fail(self.gone(peer))),
            false => Ok(()),
        }
    }

    /// Whether `peer` has left regularly. Costs one load if no rank has.
    pub(super) fn is_missing(&self, peer: usize) -> bool {
        self.departed.load(Ordering::Relaxed) && self.pages.get(peer).is_some_and(|page| page.has_left())
    }

    /// Whether `peer` has sent `more` messages that this rank has not received. False if one of the two has messages in
    /// graphs, which are not counted.
    pub(super) fn has_sent(&self, peer: usize, more: u64) -> bool {
        self.pages.get(peer).is_some_and(|page| page.unreceived(self.rank, self.own(), peer) >= Some(more))
    }

    /// The error for a rank that is gone.
    pub(super) fn gone(&self, rank: usize) -> Error {
        Error::PeerLost { rank, detail: self.end_of(rank) }
    }

    /// Whether every other rank has enqueued at least as many calls as this rank, so that all calls of this rank can
    /// finish.
    pub(super) fn can_finish(&self) -> bool {
        let calls = self.own().history.enqueued();
        self.is_well() && self.pages.iter().all(|page| page.history.enqueued() >= calls)
    }

    /// Records that `rank` is gone and stops every device at once. Peers would detect the loss themselves, but perhaps
    /// only after this rank has left too, and would then report this rank as the cause.
    fn lost(&self, rank: usize) {
        self.stop_all(Stop { cause: Cause::Lost, by: self.rank, culprit: rank });
    }

    /// Stops every rank that is not stopped yet.
    pub(super) fn stop_all(&self, stop: Stop) {
        self.pages.iter().for_each(|page| page.stop(stop));
    }

    fn diagnose(&self) -> Error {
        let page = self.own();
        let error = match (page.stopped(), page.code.load(Ordering::Acquire)) {
            (_, args::kStatusRouting | args::kStatusCapacity) => self.mismatch(self.rank, self.rank),
            (_, args::kStatusBounds) => self.outside_heap(page),
            (_, args::kStatusMismatch) => self.mismatch(self.rank, page.peer.load(Ordering::Relaxed) as usize),
            // A stop is more precise than another status: the kernel gave up because of the stop.
            (Some(stop), _) => {
                // The rank that stopped this one may not have stopped all others yet. All ranks must report the same
                // culprit.
                self.stop_all(stop);
                self.stopped(stop)
            }
            // Ranks with different calls may wait for each other in vain.
            (None, _) => self.differing().or_else(|| self.missent()).unwrap_or_else(|| self.timeout(page)),
        };
        self.tell(&error);
        error
    }

    fn timeout(&self, page: &Page) -> Error {
        let rank = self.to_blame(page.peer.load(Ordering::Relaxed) as usize);
        self.waited_for(rank, page, self.progress_of(rank))
    }

    /// The error for the wait in which the kernel of `page` gave up.
    fn waited_for(&self, rank: usize, page: &Page, detail: String) -> Error {
        let operation = operation(page);
        let sequence = page.sequence.load(Ordering::Relaxed);
        let waited = match page.timeout_ns.load(Ordering::Relaxed) {
            0 => self.deadlines.steady,
            timeout_ns => Duration::from_nanos(timeout_ns),
        };
        let detail = detail + self.advice();
        Error::Timeout { operation, sequence, rank: Some(rank), waited, detail }
    }

    /// Advice for the end of a timeout message.
    pub(super) fn advice(&self) -> &'static str {
        if self.check_calls { "" } else { "; with SYMMETRA_CHECK_CALLS=1 ranks compare every call before it runs" }
    }

    /// The error for another library's operation that exceeded its deadline. The rank with the shortest history is
    /// named as the cause.
    pub(super) fn late(&self, operation: Operation, waited: Duration) -> Error {
        let enqueued = |rank: usize| self.pages.get(rank).map_or(u64::MAX, |page| page.history.enqueued());
        let least = (0..self.pages.len()).min_by_key(|rank| enqueued(*rank));
        let rank = least.filter(|least| enqueued(*least) < enqueued(self.rank));
        let detail =
            rank.map_or_else(|| ": each had enqueued as many operations".to_owned(), |rank| self.progress_of(rank));
        let sequence = self.own().history.enqueued().saturating_sub(1);
        Error::Timeout { operation, sequence, rank, waited, detail: detail + self.advice() }
    }

    /// The rank for which the group waits, given that this rank waited for `named`. `named` may itself have waited for
    /// another rank and have given up at the same moment.
    fn to_blame(&self, named: usize) -> usize {
        let enqueued = |rank: usize| self.pages.get(rank).map_or(u64::MAX, |page| page.history.enqueued());
        let reported = |rank: usize| match self.pages.get(rank)?.finding()? {
            Finding::Late(other) => Some(other),
            Finding::Different(_) => None,
        };
        let start = Instant::now();
        while reported(named).is_none() && enqueued(named) >= self.own().history.enqueued() && start.elapsed() < REPORT
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut rank = named;
        for _ in 0..self.pages.len() {
            match reported(rank) {
                Some(next) if next != self.rank => rank = next,
                _ => break,
            }
        }
        let least = (0..self.pages.len()).filter(|other| *other != self.rank).min_by_key(|other| enqueued(*other));
        least.filter(|least| enqueued(*least) < enqueued(rank)).unwrap_or(rank)
    }

    /// Details about the end of a rank that is gone, for the end of a message.
    fn end_of(&self, rank: usize) -> String {
        let progress = self.progress_of(rank);
        let how = match self.pages.get(rank).and_then(|page| page.way_out()) {
            None => return progress,
            Some(WayOut::Departed) => "left in good order",
            Some(WayOut::Dropped) => "dropped its communicator without close() or depart()",
            Some(WayOut::Abandoned) => "abandoned its communicator",
        };
        format!(": it {how}{}", progress.replacen(':', ",", 1))
    }

    /// The progress of a rank according to its page, for the end of a message.
    pub(super) fn progress_of(&self, rank: usize) -> String {
        let Some(page) = self.pages.get(rank) else { return String::new() };
        let (ours, theirs) = (self.own().history.enqueued(), page.history.enqueued());
        let last = theirs.checked_sub(1).and_then(|number| page.history.get(number));
        let last = last.map_or_else(String::new, |call| format!(", the last {call}"));
        let pairs = [page, self.own()].map(|page| page.pairs.load(Ordering::Relaxed));
        let [theirs_in_pairs, ours_in_pairs] = match pairs {
            [0, 0] => [String::new(), String::new()],
            [theirs, ours] => [format!(" and {theirs} calls of pairs"), format!(" and {ours}")],
        };
        format!(
            ": it had enqueued {theirs} operations{last}{theirs_in_pairs}; this rank had enqueued {ours}{ours_in_pairs}"
        )
    }

    /// Stops every rank, including this rank's device, because the event for which a kernel waits may never happen.
    fn tell(&self, error: &Error) {
        if !matches!(error, Error::Aborted { .. }) {
            self.own().report.write(error);
        }
        let (cause, culprit) = match error {
            // A kernel of this rank found the mismatch in the counts.
            Error::Unsupported { .. } if self.counts_mismatch(self.rank).is_some() => {
                (Cause::Differed, self.own().peer.load(Ordering::Relaxed) as usize)
            }
            Error::Timeout { rank: Some(rank), .. } => (Cause::Failed, *rank),
            Error::Mismatch { rank, .. } => (Cause::Differed, *rank),
            // A kernel of this rank found the error, and its page has the details.
            Error::Routing { .. } | Error::Capacity { .. } | Error::Tokens { .. } => (Cause::Differed, self.rank),
            Error::PeerLost { rank, .. } => (Cause::Lost, *rank),
            // The aborting rank notifies all ranks, and may have more information than this rank.
            Error::Aborted { .. } => return,
            _ => (Cause::Abort, self.rank),
        };
        self.stop_all(Stop { cause, by: self.rank, culprit });
    }
}

/// The operation in which the kernel of a page gave up.
fn operation(page: &Page) -> Operation {
    // No kernel writes an unknown number.
    Operation::from_number(page.op.load(Ordering::Relaxed)).unwrap_or(Operation::Exchange)
}

#[cfg(test)]
#[path = "../../tests/unit/group/health.rs"]
mod tests;
