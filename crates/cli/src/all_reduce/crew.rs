//! Listens to all ranks until they are done, and finds out who failed first.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::job::Said;
use crate::failure::Failure;

/// How long the others have to end by themselves once a rank failed: long enough that the
/// one to blame is heard.
const GRACE: Duration = Duration::from_secs(2);

/// The ranks of a run, started.
pub(super) struct Crew {
    pub(super) heard: Receiver<(usize, Heard)>,
    pub(super) hands: Box<dyn Hands>,
    pub(super) ranks: usize,
}

/// What comes from a rank.
pub(super) enum Heard {
    Said(Said),
    /// It will say no more.
    Ended,
}

/// How to deal with ranks of one sort.
pub(super) trait Hands {
    /// Every rank is in the group.
    fn all_open(&mut self) {}
    /// A rank says no more: waits for its end, for a bounded time. What is wrong with how it ended; where it was
    /// not `done` anything is.
    fn end(&mut self, rank: usize, done: bool) -> Option<String>;
    /// Ends all ranks that are still there.
    fn stop(&mut self);
}

/// How the ranks fare.
struct Roll {
    open: usize,
    ended: usize,
    /// Whether a rank said that all is done, and whether it said that it gave up.
    done: Vec<bool>,
    gave_up: Vec<bool>,
    /// What failed, in the order it was heard.
    failures: Vec<(Failure, bool)>,
}

impl Crew {
    /// Blocks until every rank ended; hands on what they say. When one fails the others are ended.
    pub(super) fn attend(mut self, mut hear: impl FnMut(usize, Said) -> Result<(), Failure>) -> Result<(), Failure> {
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
        heard: Heard,
        roll: &mut Roll,
        hear: &mut impl FnMut(usize, Said) -> Result<(), Failure>,
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
                roll.failures.push((Failure::failed(format!("rank {rank}: {message}")), echo));
            }
            Heard::Said(said) => {
                if let Err(failure) = hear(rank, said) {
                    roll.failures.push((failure, false));
                }
            }
            Heard::Ended => {
                roll.ended += 1;
                let wrong = self.hands.end(rank, roll.done[rank]);
                // Who gave up said why.
                if let Some(how) = wrong.filter(|_| !roll.gave_up[rank]) {
                    roll.failures.push((Failure::failed(format!("rank {rank} {how}")), false));
                }
            }
        }
    }
}

impl Roll {
    /// The first failure that is not only an echo of another.
    fn verdict(mut self) -> Result<(), Failure> {
        let culprit = self.failures.iter().position(|(_, echo)| !echo).unwrap_or(0);
        match self.failures.is_empty() {
            true => Ok(()),
            false => Err(self.failures.swap_remove(culprit).0),
        }
    }
}
