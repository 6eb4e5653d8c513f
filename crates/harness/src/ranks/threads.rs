//! Ranks as threads of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use symmetra::bootstrap::Threads;

use super::listen::{Hands, Heard, StartedRanks};
use super::task::{Run, Said, Task};
use crate::failure::CommandFailure;

struct ThreadTeam {
    ranks: Vec<JoinHandle<()>>,
    /// Makes ranks stop at their next report: a thread cannot be killed.
    stopped: Arc<AtomicBool>,
}

impl Hands for ThreadTeam {
    fn end(&mut self, _rank: usize, done: bool) -> Option<String> {
        (!done).then(|| "ended without a report".to_owned())
    }

    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for ThreadTeam {
    fn drop(&mut self) {
        self.stop();
        for thread in self.ranks.drain(..) {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Starts every rank.
pub(super) fn start<T: Task>(run: &Run<T>) -> Result<StartedRanks<T::Found>, CommandFailure> {
    let (sender, heard) = channel();
    let mut team = ThreadTeam { ranks: Vec::new(), stopped: Arc::default() };
    for (rank, bootstrap) in Threads::new(run.ranks())?.into_iter().enumerate() {
        let (run, sender, stopped) = (run.clone(), sender.clone(), team.stopped.clone());
        let body = move || {
            let mut say = |said| match stopped.load(Ordering::Relaxed) {
                true => Err(CommandFailure::Unread),
                false => sender.send((rank, Heard::Said(said))).map_err(|_| CommandFailure::Unread),
            };
            if catch_unwind(AssertUnwindSafe(|| run.work(rank, Ok(bootstrap), &mut say))).is_err() {
                let _ = say(Said::Failed { message: "panicked".to_owned(), echo: false });
            }
            let _ = sender.send((rank, Heard::Ended));
        };
        let thread = std::thread::Builder::new().name(format!("rank-{rank}")).spawn(body);
        team.ranks.push(thread.map_err(CommandFailure::doing("start a thread"))?);
    }
    Ok(StartedRanks { heard, hands: Box::new(team), ranks: run.ranks() })
}
