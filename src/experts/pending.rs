//! The order of calls that were begun and are not received yet.

use std::collections::VecDeque;

use super::steps::Underway;
use crate::error::{Error, Operation, Result};
use crate::group::Announced;

/// A call whose sending kernel was enqueued, and whose receiving kernel was not.
#[derive(Clone, Copy)]
pub(super) struct SentHalf {
    /// The number of the call among the calls of its operation.
    number: u64,
    pub(super) underway: Underway,
    pub(super) announced: Announced,
    /// Whether the handle of the call was dropped.
    dropped: bool,
}

/// The calls of one operation that were begun and are not received, in the order of their begins.
pub(super) struct CallLine {
    operation: Operation,
    /// Number of all calls that were begun.
    begun: u64,
    sent: VecDeque<SentHalf>,
}

impl CallLine {
    fn new(operation: Operation, most: usize) -> Self {
        Self { operation, begun: 0, sent: VecDeque::with_capacity(most) }
    }

    /// Adds a call, and returns its number.
    pub(super) fn begin(&mut self, underway: Underway, announced: Announced) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.sent.push_back(SentHalf { number, underway, announced, dropped: false });
        number
    }

    /// The number of calls.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Refuses a call that would be received before an earlier call.
    pub(super) fn refuse_behind(&self, what: &str) -> Result<()> {
        match self.sent.front() {
            None => Ok(()),
            Some(_) => Err(self.behind(what)),
        }
    }

    /// The call with this number, if it is the next to be received.
    pub(super) fn turn(&self, number: u64) -> Result<SentHalf> {
        match self.sent.front() {
            Some(next) if next.number == number => Ok(*next),
            _ => Err(self.behind("to receive")),
        }
    }

    fn behind(&self, what: &str) -> Error {
        let operation = self.operation.name();
        let reason = format!("a {operation} that was begun before is to be received first");
        Error::unsupported(format!("{what} a {operation}"), reason)
    }

    /// The next call to be received, if its handle was dropped.
    pub(super) fn dropped(&self) -> Option<SentHalf> {
        self.sent.front().filter(|next| next.dropped).copied()
    }

    /// Removes the next call, because its receiving kernel was enqueued.
    pub(super) fn end(&mut self) {
        self.sent.pop_front();
    }

    /// Marks the handle of the call with this number as dropped. Returns whether the call was pending.
    pub(super) fn drop_handle(&mut self, number: u64) -> bool {
        let sent = self.sent.iter_mut().find(|sent| sent.number == number);
        sent.map(|sent| sent.dropped = true).is_some()
    }

    /// Marks the handles of all calls as dropped.
    fn drop_handles(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.dropped = true);
    }
}

/// The calls of both operations that were begun and are not received, either of streams or of one capture.
pub(super) struct PendingCalls([CallLine; 2]);

impl PendingCalls {
    /// `most`: the largest number of pending calls of each operation.
    pub(super) fn new(most: usize) -> Self {
        Self([Operation::Dispatch, Operation::Combine].map(|operation| CallLine::new(operation, most)))
    }

    pub(super) fn of(&mut self, operation: Operation) -> &mut CallLine {
        let [dispatches, combines] = &mut self.0;
        if operation == Operation::Dispatch { dispatches } else { combines }
    }

    /// Removes all calls without receiving them, and passes their slots to `give_back`.
    pub(super) fn abandon(&mut self, mut give_back: impl FnMut(usize)) {
        let sent = self.0.iter_mut().flat_map(|line| line.sent.drain(..));
        sent.for_each(|sent| give_back(sent.underway.slot));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|line| line.sent.is_empty())
    }

    /// Marks the handles of all calls as dropped.
    pub(super) fn drop_handles(&mut self) {
        self.0.iter_mut().for_each(CallLine::drop_handles);
    }
}
