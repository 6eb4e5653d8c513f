//! Warns about the rank for which the others wait, long before a deadline passes.

use std::time::{Duration, Instant};

use super::call::EnqueuedCall;
use super::{Health, ParallelGroup};
use crate::bootstrap::wait::Patience;
use crate::error::group_of_world;

/// The observed progress of the slowest ranks.
#[derive(Debug)]
pub(super) struct Silence {
    /// The number of calls of the slowest rank.
    calls: u64,
    /// The schedule of the warnings, from the first observation on.
    patience: Patience,
}

/// Ranks that have not made a call that another rank has made.
#[derive(Debug, PartialEq, Eq)]
struct Behind {
    /// The number of calls that the ranks have made, which is the number of the call that waits for them.
    calls: u64,
    ranks: Vec<usize>,
    waited: Duration,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Self { calls: 0, patience: Patience::new(now) }
    }

    /// The ranks to warn about, given the number of calls of each rank. `own` is this rank's index.
    fn look(&mut self, now: Instant, own: usize, calls: &[u64]) -> Option<Behind> {
        let least = calls.iter().copied().min().unwrap_or(0);
        if least != self.calls || least == calls[own] {
            *self = Self { calls: least, patience: Patience::new(now) };
            return None;
        }
        let waited = self.patience.ended(now)?;
        let ranks = calls.iter().enumerate().filter(|(_, calls)| **calls == least).map(|(rank, _)| rank);
        Some(Behind { calls: least, ranks: ranks.collect(), waited })
    }
}

impl Health {
    /// The periodic check of the monitor: detects different calls and calls that wait for a departed rank, and warns
    /// about ranks for which this rank waits.
    pub(super) fn look(&self, silence: &mut Silence) {
        if self.is_well() && self.confirm().is_ok() {
            self.heed_departed();
            self.warn(silence, Instant::now());
        }
    }

    fn warn(&self, silence: &mut Silence, now: Instant) {
        if self.silent {
            return;
        }
        let calls: Vec<u64> = self.pages.iter().map(|page| page.history.enqueued()).collect();
        let Some(behind) = silence.look(now, self.rank, &calls) else { return };
        let call = self.own().history.get(behind.calls);
        crate::log!(WARN, "{}", self.words(&behind, call));
    }

    fn words(&self, behind: &Behind, call: Option<EnqueuedCall>) -> String {
        let Behind { calls, ranks, waited } = behind;
        let call = call.map_or_else(String::new, |call| format!(" ({call})"));
        let group = match self.place.get() {
            None => format!("a group of {}", self.pages.len()),
            Some(ParallelGroup { name, world, .. }) => {
                let named: Vec<usize> = std::iter::once(self.rank).chain(ranks.iter().copied()).collect();
                match group_of_world(name, world, &named) {
                    group if group.contains(',') => format!("{group},"),
                    group => group,
                }
            }
        };
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank}"),
            ranks => format!("ranks {ranks:?}"),
        };
        let last = calls
            .checked_sub(1)
            .map_or_else(|| "without a call so far".to_owned(), |last| format!("whose last call is {last}"));
        format!("call {calls}{call} of {group} waits on rank {} for {who}, {last}: {} s", self.rank, waited.as_secs())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/silence.rs"]
mod tests;
