//! Keeps the bootstrap of ranks on several hosts open for one final all-gather, in which every rank sends one report:
//! when a group of the rank fails, or when the rank closes. While groups open, they use the bootstrap and no rank
//! reports: ranks compare the outcome of each opening, and a report would be mistaken for an outcome.
//!
//! A failed group may contain only some of the ranks. If a rank gave up on the all-gather, the rest would report it
//! as lost. So the all-gather continues in a thread, until all ranks have sent a report or a rank is lost.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::bootstrap::{Bootstrap, LONGEST, until};
use crate::error::{Error, Result};

/// The reports of all ranks, in rank order.
pub(crate) type LastWords = Result<Vec<Vec<u8>>>;

/// The bootstrap, shared by the groups of an environment.
pub(crate) struct FinalExchange {
    bootstrap: Mutex<Box<dyn Bootstrap>>,
    outcome: Mutex<ExchangeEnd>,
    changed: Condvar,
}

enum ExchangeEnd {
    /// Groups are opening.
    Opening,
    /// This rank has sent no report.
    Silent,
    /// This rank has sent a report and waits for the others.
    Awaited,
    Known(LastWords),
}

impl FinalExchange {
    pub(crate) fn new(bootstrap: Box<dyn Bootstrap>) -> Arc<Self> {
        let (bootstrap, outcome) = (Mutex::new(bootstrap), Mutex::new(ExchangeEnd::Opening));
        Arc::new(Self { bootstrap, outcome, changed: Condvar::new() })
    }

    /// Locks the bootstrap for groups that open.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<dyn Bootstrap>> {
        self.bootstrap.lock()
    }

    /// All groups are open.
    pub(crate) fn opened(&self) {
        *self.outcome.lock() = ExchangeEnd::Silent;
    }

    /// Sends this rank's report on a failed group; only the first report is sent. Returns the reports of all ranks, if
    /// complete by `deadline`. Returns `None` at once while groups open.
    pub(crate) fn say(self: &Arc<Self>, word: &[u8], deadline: Instant) -> Option<LastWords> {
        let mut outcome = self.outcome.lock();
        if matches!(*outcome, ExchangeEnd::Silent) {
            *outcome = ExchangeEnd::Awaited;
            let (last, word) = (self.clone(), word.to_vec());
            let hear = move || drop(last.hear(&word, until(LONGEST)));
            if let Err(error) = std::thread::Builder::new().name("symmetra-last".to_owned()).spawn(hear) {
                *outcome = ExchangeEnd::Known(Err(Error::system("start a thread", &error)));
            }
        }
        loop {
            match &*outcome {
                ExchangeEnd::Known(words) => return Some(words.clone()),
                ExchangeEnd::Opening => return None,
                _ if Instant::now() >= deadline => return None,
                _ => {
                    self.changed.wait_until(&mut outcome, deadline);
                }
            }
        }
    }

    /// Sends the report of a rank that closes. `well` is the state of its groups. A healthy rank waits for the others.
    pub(crate) fn close(self: &Arc<Self>, well: Result<()>, deadline: Instant) -> Result<()> {
        match well {
            Ok(()) => self.leave(deadline),
            // Healthy ranks wait for this rank's message.
            Err(error) => {
                self.say(&[], Instant::now());
                Err(error)
            }
        }
    }

    /// Sends the empty report of a healthy rank that closes, and waits for the others. Blocks.
    pub(crate) fn leave(&self, deadline: Instant) -> Result<()> {
        let mut outcome = self.outcome.lock();
        match &*outcome {
            ExchangeEnd::Known(words) => return words.clone().map(drop),
            ExchangeEnd::Opening | ExchangeEnd::Awaited => return Ok(()),
            ExchangeEnd::Silent => *outcome = ExchangeEnd::Awaited,
        }
        drop(outcome);
        self.hear(&[], deadline).map(drop)
    }

    fn hear(&self, word: &[u8], deadline: Instant) -> LastWords {
        let words = self.bootstrap.lock().all_gather(word, deadline);
        *self.outcome.lock() = ExchangeEnd::Known(words.clone());
        self.changed.notify_all();
        words
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/final_exchange.rs"]
mod tests;
