//! What the ranks of several hosts met by, kept for one more all-gather: the last, in which every rank says once
//! what it knows, when a group of it fails or else when it closes. Before that, while groups open, it serves those, and
//! nobody says anything: ranks compare how each group opened, and an all-gather of some would be taken for that.
//!
//! A group that fails need not be that of all ranks. So who asks does not end the all-gather by giving up on it, which
//! would look like its death to the rest: it goes on in a thread, until the others have spoken too or one is gone.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::bootstrap::{Bootstrap, LONGEST, until};
use crate::error::{Error, Result};

/// What all ranks said, in rank order.
pub(crate) type Words = Result<Vec<Vec<u8>>>;

/// What the groups of an environment share of the bootstrap.
pub(crate) struct FinalExchange {
    bootstrap: Mutex<Box<dyn Bootstrap>>,
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

enum Outcome {
    /// Groups open.
    Opening,
    /// This rank has said nothing.
    Silent,
    /// It has, and waits for the others.
    Awaited,
    Known(Words),
}

impl FinalExchange {
    pub(crate) fn new(bootstrap: Box<dyn Bootstrap>) -> Arc<Self> {
        let (bootstrap, outcome) = (Mutex::new(bootstrap), Mutex::new(Outcome::Opening));
        Arc::new(Self { bootstrap, outcome, changed: Condvar::new() })
    }

    /// For what comes before: the groups that open.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<dyn Bootstrap>> {
        self.bootstrap.lock()
    }

    /// All groups are open.
    pub(crate) fn opened(&self) {
        *self.outcome.lock() = Outcome::Silent;
    }

    /// Says what this rank, of which a group failed, knows; only the first time counts. What all said, if that is
    /// known by `deadline`. Nothing, at once, while groups open.
    pub(crate) fn say(self: &Arc<Self>, word: &[u8], deadline: Instant) -> Option<Words> {
        let mut outcome = self.outcome.lock();
        if matches!(*outcome, Outcome::Silent) {
            *outcome = Outcome::Awaited;
            let (last, word) = (self.clone(), word.to_vec());
            let hear = move || drop(last.hear(&word, until(LONGEST)));
            if let Err(error) = std::thread::Builder::new().name("symmetra-last".to_owned()).spawn(hear) {
                *outcome = Outcome::Known(Err(Error::system("start a thread", &error)));
            }
        }
        loop {
            match &*outcome {
                Outcome::Known(words) => return Some(words.clone()),
                Outcome::Opening => return None,
                _ if Instant::now() >= deadline => return None,
                _ => {
                    self.changed.wait_until(&mut outcome, deadline);
                }
            }
        }
    }

    /// A rank that is well leaves: waits until all others have spoken. Blocks.
    pub(crate) fn leave(&self, deadline: Instant) -> Result<()> {
        let mut outcome = self.outcome.lock();
        match &*outcome {
            Outcome::Known(words) => return words.clone().map(drop),
            Outcome::Opening | Outcome::Awaited => return Ok(()),
            Outcome::Silent => *outcome = Outcome::Awaited,
        }
        drop(outcome);
        self.hear(&[], deadline).map(drop)
    }

    fn hear(&self, word: &[u8], deadline: Instant) -> Words {
        let words = self.bootstrap.lock().all_gather(word, deadline);
        *self.outcome.lock() = Outcome::Known(words.clone());
        self.changed.notify_all();
        words
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/final_exchange.rs"]
mod tests;
