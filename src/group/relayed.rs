//! The failure of a rank that another rank stopped: the error that the other rank found, from this rank's point of
//! view.

use super::Health;
use super::control_page::{Cause, Page, Stop};
use crate::error::{BY_THIS_RANK, Error, HOST_CALL, Operation};

impl Health {
    /// The error that caused a stop.
    pub(super) fn stopped(&self, stop: Stop) -> Error {
        let Stop { cause, by, culprit } = stop;
        let report = self.pages.get(by).filter(|_| by != self.rank).and_then(|page| page.report.read(by));
        match (cause, report) {
            (Cause::Abort, report) => aborted(by, report),
            (Cause::Lost, _) => self.gone(culprit).seen_by(self.rank, by),
            (Cause::Differed, Some(error @ Error::Mismatch { .. })) if of_host_calls(&error) => error,
            (Cause::Differed, _) => self.mismatch(by, culprit),
            (Cause::Failed, Some(Error::Timeout { operation, sequence, waited, detail, .. })) => {
                let detail = match operation {
                    _ if culprit == self.rank => detail,
                    Operation::Exchange => format!(": rank {by} gave up first{detail}"),
                    _ => format!(": rank {by} gave up first{}{}", self.progress_of(culprit), self.advice()),
                };
                Error::Timeout { operation, sequence, rank: Some(culprit), waited, detail }.seen_by(self.rank, by)
            }
            (Cause::Failed, _) => self.late_in_call(by, culprit),
        }
    }

    /// The error of a rank whose call waits for a call that `culprit` has not made.
    fn late_in_call(&self, by: usize, culprit: usize) -> Error {
        let sequence = self.pages.get(culprit).map_or(0, |page| page.history.enqueued());
        let call = self.pages.get(by).and_then(|page| page.history.get(sequence));
        let operation = call.and_then(|call| Operation::from_number(call.op())).unwrap_or(Operation::Exchange);
        let detail = self.progress_of(culprit) + self.advice();
        let waited = self.deadlines.open;
        Error::Timeout { operation, sequence, rank: Some(culprit), waited, detail }.seen_by(self.rank, by)
    }

    /// Makes a timeout in a host-side collective call the group's failure. If the late rank waits in a call that this
    /// rank has not made, this rank is the late one. Returns the failure.
    pub(super) fn late_in_exchange(&self, error: Error) -> Error {
        let enqueued = |page: &Page| page.history.enqueued();
        if let Error::Timeout { operation: Operation::Exchange, rank: Some(by), .. } = error
            && self.pages.get(by).is_some_and(|page| enqueued(page) > enqueued(self.own()))
        {
            self.stop_all(Stop { cause: Cause::Failed, by, culprit: self.rank });
            return self.check().err().unwrap_or(error);
        }
        self.fail(error.clone());
        error
    }
}

/// Whether ranks made different host-side collective calls.
fn of_host_calls(error: &Error) -> bool {
    matches!(error, Error::Mismatch { what, .. } if what.starts_with(HOST_CALL))
}

/// The error of a group that rank `by` aborted, with the error that the rank reports.
fn aborted(by: usize, report: Option<Error>) -> Error {
    let reason = match report {
        None => String::new(),
        Some(Error::Timeout { operation, sequence, rank, waited, detail }) => {
            let detail = format!("{detail}; found by rank {by}");
            return Error::Timeout { operation, sequence, rank, waited, detail };
        }
        Some(Error::Aborted { detail }) => detail.strip_prefix(BY_THIS_RANK).unwrap_or(&detail).to_owned(),
        Some(Error::Peer { rank, message }) if rank == by => format!(": {message}"),
        Some(error) => format!(": {error}"),
    };
    Error::Aborted { detail: format!(": by rank {by}{reason}") }
}
