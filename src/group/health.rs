//! From flags to the error that every later call returns.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::page::{Cause, Page, Stop};
use super::{Health, PageMapping};
use crate::error::{Error, Operation, Result};
use crate::kernel::args;
use crate::types::Dtype;

impl Health {
    fn own(&self) -> &Page {
        &self.pages[self.rank]
    }

    /// Two loads when all is well.
    pub(super) fn check(&self) -> Result<()> {
        if self.own().healthy() && self.failure.get().is_none() {
            return Ok(());
        }
        Err(self.failure.get_or_init(|| self.diagnose()).clone())
    }

    /// Makes `error` the group's failure unless there is one, and stops everybody.
    pub(super) fn fail(&self, error: Error) {
        let error = self.failure.get_or_init(|| error);
        self.tell_peers(error);
    }

    /// A rank is gone: stop the own device at once; peers see it themselves.
    pub(super) fn lost(&self, rank: usize) {
        self.own().stop(Stop { cause: Cause::Lost, by: self.rank, culprit: rank });
    }

    fn diagnose(&self) -> Error {
        let page = self.own();
        let error = match (page.stopped(), page.code.load(Ordering::Acquire)) {
            // A stop says more than the status block: the device gave up because of it.
            (Some(stop), _) => self.stopped(stop),
            (None, args::kStatusMismatch) => self.mismatch(page),
            (None, _) => self.timeout(page),
        };
        self.tell_peers(&error);
        error
    }

    fn stopped(&self, stop: Stop) -> Error {
        let Stop { cause, by, culprit } = stop;
        match cause {
            Cause::Abort => Error::Aborted { detail: format!(": by rank {by}") },
            Cause::Lost => Error::PeerLost { rank: culprit, detail: self.progress_of(culprit) },
            Cause::Failed if culprit == self.rank => {
                Error::Aborted { detail: format!(": rank {by} had waited too long for this one") }
            }
            Cause::Failed => Error::Timeout {
                operation: self.operation(),
                sequence: self.own().sequence.load(Ordering::Relaxed),
                rank: Some(culprit),
                waited: self.deadlines.steady,
                detail: format!(": rank {by} gave up first{}", self.progress_of(culprit)),
            },
        }
    }

    fn timeout(&self, page: &Page) -> Error {
        let rank = page.peer.load(Ordering::Relaxed) as usize;
        let sequence = page.sequence.load(Ordering::Relaxed);
        let waited: Duration = if sequence == 0 { self.deadlines.first_use } else { self.deadlines.steady };
        let detail = self.progress_of(rank);
        Error::Timeout { operation: self.operation(), sequence, rank: Some(rank), waited, detail }
    }

    fn mismatch(&self, page: &Page) -> Error {
        let theirs = [0, 1].map(|word: usize| page.theirs[word].load(Ordering::Relaxed));
        let call = page.history.get(page.history.enqueued().wrapping_sub(1));
        Error::Mismatch {
            what: "the call".to_owned(),
            against: self.rank,
            ours: call.map_or_else(|| "unknown".to_owned(), |call| describe(call.bytes, call.descriptor)),
            rank: page.peer.load(Ordering::Relaxed) as usize,
            theirs: describe(theirs[0], theirs[1]),
        }
    }

    fn operation(&self) -> Operation {
        match self.own().op.load(Ordering::Relaxed) {
            args::kOpSignalWait => Operation::SignalWait,
            args::kOpSignalBarrier => Operation::SignalBarrier,
            args::kOpAgree => Operation::Agree,
            _ => Operation::AllReduce,
        }
    }

    /// What a rank's page tells of it, for the end of a message.
    fn progress_of(&self, rank: usize) -> String {
        let Some(page) = self.pages.get(rank) else { return String::new() };
        let (ours, theirs) = (self.own().history.enqueued(), page.history.enqueued());
        let last = theirs.checked_sub(1).and_then(|number| page.history.get(number));
        let last =
            last.map_or_else(String::new, |call| format!(", the last {}", describe(call.bytes, call.descriptor)));
        format!(": it had enqueued {theirs} operations{last}; this rank {ours}")
    }

    fn tell_peers(&self, error: &Error) {
        let culprit = match error {
            Error::Timeout { rank: Some(rank), .. } | Error::Mismatch { rank, .. } => *rank,
            // Peers see the loss and the abort themselves.
            _ => return,
        };
        let stop = Stop { cause: Cause::Failed, by: self.rank, culprit };
        self.others().for_each(|page| page.stop(stop));
    }

    fn others(&self) -> impl Iterator<Item = &PageMapping> {
        self.pages.iter().enumerate().filter(|(rank, _)| *rank != self.rank).map(|(_, page)| page)
    }
}

/// A call in words. The packing is that of `AgreeArgs::ours`.
fn describe(bytes: u64, descriptor: u64) -> String {
    let dtype = Dtype::from_number((descriptor >> 8 & 0xff) as u32).map_or("?", Dtype::name);
    format!("all-reduce of {bytes} bytes of {dtype} by algorithm {}", descriptor >> 16 & 0xff)
}
