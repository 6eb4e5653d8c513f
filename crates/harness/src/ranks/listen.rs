//! Receives the reports of all ranks until they are done, and finds out which rank failed first.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::task::Said;
use crate::failure::CommandFailure;

/// How long the other ranks have to end by themselves once a rank failed, so that the report of the rank to blame
/// arrives.
const GRACE: Duration = Duration::from_secs(2);

/// The ranks of a run, started.
pub(super) struct StartedRanks<F> {
    pub(super) heard: Receiver<(usize, Heard<F>)>,
    pub(super) hands: Box<dyn Hands>,
    pub(super) ranks: usize,
}

/// An event of a rank.
pub(super) enum Heard<F> {
    Said(Said<F>),
    /// The rank sends no more reports.
    Ended,
}

/// The operations that differ between processes and threads.
pub(super) trait Hands {
    /// Every rank is in the group.
    fn all_open(&mut self) {}
    /// Waits for the end of a rank that sends no more reports, for a bounded time. Returns an error text if the rank
    /// ended wrongly: any end is wrong for a rank that was not `done`.
    fn end(&mut self, rank: usize, done: bool) -> Option<String>;
    /// Ends all ranks that are still there.
    fn stop(&mut self);
}

/// The state of the ranks.
struct Roll {
    open: usize,
    ended: usize,
    /// Whether each rank reported that it is done, and whether it reported that it gave up.
    done: Vec<bool>,
    gave_up: Vec<bool>,
    /// Failures in the order of their arrival, and whether each may be an echo.
    failures: Vec<(CommandFailure, bool)>,
}

impl<F> StartedRanks<F> {
    pub(super) fn attend(
        mut self,
        mut hear: impl FnMut(usize, F) -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let none = vec![false; self.ranks];
        let mut roll = Roll { open: 0, ended: 0, done: none.clone(), gave_up: none, failures: Vec::new() };
        let mut stop_at: Option<Instant> = None;
        while roll.ended < self.ranks {
            let heard = match stop_at {
                None => self.heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.heard.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match heard {
                Ok((rank, heard)) => self.note(rank, heard, &mut roll, &mut hear),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.hands.stop();
                    stop_at = Some(Instant::now() + Duration::from_secs(60));
                }
            }
            if !roll.failures.is_empty() && stop_at.is_none() {
                stop_at = Some(Instant::now() + GRACE);
            }
        }
        roll.verdict()
    }

    fn note(
        &mut self,
        rank: usize,
        heard: Heard<F>,
        roll: &mut Roll,
        hear: &mut impl FnMut(usize, F) -> Result<(), CommandFailure>,
    ) {
        match heard {
            Heard::Said(Said::Open) => {
                roll.open += 1;
                if roll.open == self.ranks {
                    self.hands.all_open();
                }
            }
            Heard::Said(Said::Done) => roll.done[rank] = true,
            Heard::Said(Said::Failed { message, echo }) => {
                roll.gave_up[rank] = true;
                roll.failures.push((CommandFailure::failed(format!("rank {rank}: {message}")), echo));
            }
            Heard::Said(Said::Found(found)) => {
                if let Err(failure) = hear(rank, found) {
                    roll.failures.push((failure, false));
                }
            }
            Heard::Ended => {
                roll.ended += 1;
                let wrong = self.hands.end(rank, roll.done[rank]);
                // A rank that gave up has reported why.
                if let Some(how) = wrong.filter(|_| !roll.gave_up[rank]) {
                    roll.failures.push((CommandFailure::failed(format!("rank {rank} {how}")), false));
                }
            }
        }
    }
}

impl Roll {
    /// The first failure that is not only an echo of another.
    fn verdict(mut self) -> Result<(), CommandFailure> {
        let culprit = self.failures.iter().position(|(_, echo)| !echo).unwrap_or(0);
        match self.failures.is_empty() {
            true => Ok(()),
            false => Err(self.failures.swap_remove(culprit).0),
        }
    }
}
