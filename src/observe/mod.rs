//! Looks at running groups from outside of their processes: which rank is where, and for which rank the others wait.
//!
//! Each rank keeps a control page in shared memory, which has its last calls, its waits and its failure. [`look`] finds
//! the pages of all processes of this user on this host, opens the pages for reading, and copies each page several
//! times within 25 to 300 ms. Nothing is sent to a rank and nothing is written. A rank that is stopped or has ended
//! is shown too, as long as a rank of its group lives. `symmetra status` prints the [`Snapshot`].
//!
//! A [`Record`] is the history of a rank in a file, for the time after the job: each failure writes one if the variable
//! `SYMMETRA_DUMP` names a folder, and [`Communicator::dump`](crate::Communicator::dump), [`dump_all`] and [`dump_on`] write
//! them at any time. `symmetra postmortem` merges the files of a group.
//!
//! ```
//! for group in symmetra::observe::look(None)?.groups {
//!     println!("{}: {}", group.verdict.words, group.ranks.len());
//! }
//! # Ok::<(), symmetra::Error>(())
//! ```

pub(crate) mod failed;
mod judge;
mod processes;
mod rank;
mod sample;
mod signal;
mod timings;
mod tracer;

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
pub use crate::group::{Failed, Record, RecordedCall, RecordedWait, dump_all};
pub use judge::Verdict;
pub use processes::ProcessState;
use processes::{HostPages, stat};
pub use rank::{ObservedCall, ObservedRank, ObservedWait, RankState, WaitPlace};
use sample::Sample;
pub use signal::dump_on;
pub use timings::{CallTimes, ShareOfWait, Timings};
pub use tracer::{Looked, Tracer};

/// The groups of this user on this host at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The groups, in the order in which they were opened.
    pub groups: Vec<ObservedGroup>,
    /// The control pages that this build cannot read, each with the reason.
    pub unreadable: Vec<UnreadablePage>,
    /// The number of processes whose files the kernel does not show to this user. They may have groups.
    pub refused_processes: usize,
}

/// A group at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ObservedGroup {
    /// The name of the parallel group, clipped to 64 bytes; `None` for a group without a name.
    pub name: Option<String>,
    /// The number of ranks.
    pub world_size: usize,
    /// The ranks that have a control page, in rank order. While a group opens, ranks are missing that have not begun, or
    /// whose PID namespace this process does not see.
    pub ranks: Vec<ObservedRank>,
    /// The state of the group in a sentence.
    pub verdict: Verdict,
    /// The times of the last calls of all ranks, at most 4096 of each; empty if calls are not timed:
    /// [`Config::timing`](crate::Config::timing).
    pub timings: Timings,
}

/// A control page that this build cannot read.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct UnreadablePage {
    /// The processes that have the page open.
    pub processes: Vec<u32>,
    /// The reason.
    pub reason: String,
}

/// The time between two copies of a page, and the most copies. A kernel that waits writes its time every 64 us, but on the
/// CPU the thread of a kernel may have to wait for a core.
const PAUSE: Duration = Duration::from_millis(25);
const COPIES: usize = 12;

/// Looks at all groups of this user on this host, or at those of process `of` and of the processes that it started. Blocks
/// for 25 to 300 ms: a wait is in progress if its time changes.
///
/// # Errors
/// [`Error::InvalidArgument`] if process `of` does not exist, cannot be read, or has no group;
/// [`Error::System`] if `/proc` cannot be read.
pub fn look(of: Option<u32>) -> Result<Snapshot> {
    let host = HostPages::look().map_err(|error| Error::system("read /proc", &error))?;
    let sample = Sample::take(&host, |found| {
        of.is_none_or(|process| found.holders.iter().any(|holder| holder.descends_from(process)))
    });
    if let Some(process) = of.filter(|_| sample.is_empty()) {
        return Err(Error::invalid("process", process, without_group(process)));
    }
    Ok(sample.snapshot(host.refused))
}

/// The reason for which no group of a process was found.
fn without_group(process: u32) -> &'static str {
    let readable = std::fs::read_dir(format!("/proc/{process}/fd"));
    match (stat(process), readable) {
        (None | Some((ProcessState::Ended, _)), _) => "there is no such process",
        (_, Err(_)) => "the kernel does not show its files to this user",
        _ => "neither it nor a process that it started has a group",
    }
}
