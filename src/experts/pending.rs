//! The order of calls that were begun and are not received yet.

use std::collections::VecDeque;

use super::steps::Underway;
use crate::error::{Error, Operation, Result};

/// A call whose sending kernel was enqueued, and whose receiving kernel was not.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// Number among the calls of its operation.
    number: u64,
    pub(super) underway: Underway,
    /// Whether the call is the first on the device.
    pub(super) first: bool,
    /// Whether the call has no handle any more.
    dropped: bool,
}

/// The calls of one operation that were begun and are not received, in the order of their begins.
pub(super) struct Line {
    operation: Operation,
    /// Calls that were ever begun.
    begun: u64,
    sent: VecDeque<Sent>,
}

impl Line {
    fn new(operation: Operation, most: usize) -> Self {
        Self { operation, begun: 0, sent: VecDeque::with_capacity(most) }
    }

    /// Adds a call, and returns its number.
    pub(super) fn begin(&mut self, underway: Underway, first: bool) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.sent.push_back(Sent { number, underway, first, dropped: false });
        number
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Refuses a call that would be received ahead of one that was begun before.
    pub(super) fn refuse_behind(&self, what: &str) -> Result<()> {
        match self.sent.front() {
            None => Ok(()),
            Some(_) => Err(self.behind(what)),
        }
    }

    /// The call with this number, if it is the next to be received.
    pub(super) fn turn(&self, number: u64) -> Result<Sent> {
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

    /// The next call to be received, if nobody will.
    pub(super) fn dropped(&self) -> Option<Sent> {
        self.sent.front().filter(|next| next.dropped).copied()
    }

    /// Takes the next call away, because its receiving kernel was enqueued.
    pub(super) fn end(&mut self) {
        self.sent.pop_front();
    }

    /// Notes that nobody will receive the call with this number. Returns whether the call was there.
    pub(super) fn drop_handle(&mut self, number: u64) -> bool {
        let sent = self.sent.iter_mut().find(|sent| sent.number == number);
        sent.map(|sent| sent.dropped = true).is_some()
    }

    /// Notes that nobody will receive any of the calls.
    fn drop_handles(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.dropped = true);
    }
}

/// The calls of both operations that were begun and are not received: those of streams, or those of one capture.
pub(super) struct Pending([Line; 2]);

impl Pending {
    /// `most`: how many of each operation there may be.
    pub(super) fn new(most: usize) -> Self {
        Self([Operation::Dispatch, Operation::Combine].map(|operation| Line::new(operation, most)))
    }

    pub(super) fn of(&mut self, operation: Operation) -> &mut Line {
        let [dispatches, combines] = &mut self.0;
        if operation == Operation::Dispatch { dispatches } else { combines }
    }

    /// Takes all calls away without receiving them, and gives the slots that they held to `give_back`.
    pub(super) fn abandon(&mut self, mut give_back: impl FnMut(usize)) {
        let sent = self.0.iter_mut().flat_map(|line| line.sent.drain(..));
        sent.for_each(|sent| give_back(sent.underway.slot));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|line| line.sent.is_empty())
    }

    /// Notes that nobody will receive any of the calls.
    pub(super) fn drop_handles(&mut self) {
        self.0.iter_mut().for_each(Line::drop_handles);
    }
}
