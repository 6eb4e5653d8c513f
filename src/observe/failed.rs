//! The wait for which a group of this process has failed, in the words of `symmetra status`.

use std::time::{Duration, Instant};

use super::judge::last_wait;
use super::processes::{ProcessState, state_of};
use super::rank::{ObservedRank, PageCopies};
use crate::collective::Communicator;
use crate::group::Seen;

/// How long the devices of a failed group may take to give up, and the process of a lost rank to end.
const SETTLES: Duration = Duration::from_millis(20);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest wait in which the devices of a failed group gave up, in a sentence. `None` for a group that is well, and where no
/// device gave up a wait. Blocks for at most 20 ms.
pub fn failed_wait(communicator: &Communicator) -> Option<String> {
    let group = communicator.group();
    group.check().err()?;
    let pages = group.seen().ok()?;
    let end = Instant::now() + SETTLES;
    loop {
        let states: Vec<ProcessState> = pages.iter().map(|page| state_of(page.owner())).collect();
        if Instant::now() >= end || have_settled(&pages, &states) {
            let copies = pages.iter().zip(states).map(|(page, state)| {
                let (_, process) = page.owner();
                ObservedRank::new(&PageCopies { first: page, last: page, process, state })
            });
            return last_wait(&copies.collect::<Option<Vec<_>>>()?).map(|(words, _)| words);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether later looks show nothing new: all devices have given up or have no calls, and a rank that was lost has ended.
fn have_settled(pages: &[Seen], states: &[ProcessState]) -> bool {
    let lost: Vec<usize> = pages.iter().filter_map(Seen::lost).collect();
    pages.iter().zip(states).enumerate().all(|(rank, (page, state))| match state {
        ProcessState::Running => page.has_settled() && (page.left().is_some() || !lost.contains(&rank)),
        _ => true,
    })
}
