//! Passes a rank's output on in whole lines, each with its rank.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::LaunchEvent;
use harness::failure::{self, CommandFailure};

/// Longer lines are broken, so that an endless line fills no memory.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Most bytes that a pipe holds when the last rank ends.
const PIPE_BYTES: u64 = 1 << 20;

/// Passes on one output of a rank.
pub(super) struct Relay {
    /// Since when there has been no output to pass on; `None` while there is output.
    idle_since: Mutex<Option<Instant>>,
    passed_bytes: AtomicU64,
    ended: AtomicBool,
}

impl Relay {
    fn new() -> Self {
        Self { idle_since: Mutex::new(None), passed_bytes: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    /// Whether output of the ranks may still arrive. The ranks ended at `end`, when `end_bytes` had been passed on.
    /// Children of ranks may hold the pipe open without output, or go on writing; the launcher does not wait for them.
    pub(super) fn lags(&self, end: Instant, end_bytes: u64, patience: Duration) -> bool {
        let quiet = self.idle_since.lock().is_some_and(|since| since.max(end).elapsed() >= patience);
        !self.ended.load(Ordering::Acquire) && !quiet && self.passed_bytes() - end_bytes <= PIPE_BYTES
    }

    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed_bytes.load(Ordering::Acquire)
    }

    /// Writes each line at once, and so whole: the standard streams are locked for a write.
    fn run(&self, rank: usize, mut from: impl BufRead, mut to: impl Write) -> Result<(), CommandFailure> {
        let prefix = format!("[{rank}] ");
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend(prefix.as_bytes());
            *self.idle_since.lock() = Some(Instant::now());
            let read_bytes = from.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let read_bytes = read_bytes.map_err(CommandFailure::doing(format!("read the output of rank {rank}")))?;
            *self.idle_since.lock() = None;
            if read_bytes == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            to.write_all(&line).and_then(|()| to.flush()).map_err(CommandFailure::output)?;
            self.passed_bytes.fetch_add(read_bytes as u64, Ordering::AcqRel);
        }
    }
}

/// Starts passing on the output of `child`, unless `child` writes to our output itself.
pub(super) fn start(
    rank: usize,
    child: &mut Child,
    sender: &Sender<LaunchEvent>,
) -> Result<Vec<Arc<Relay>>, CommandFailure> {
    let outputs = [
        child.stdout.take().map(|pipe| spawn(rank, pipe, std::io::stdout, sender.clone())),
        child.stderr.take().map(|pipe| spawn(rank, pipe, std::io::stderr, sender.clone())),
    ];
    outputs.into_iter().flatten().collect()
}

fn spawn<W: Write + 'static>(
    rank: usize,
    from: impl Read + Send + 'static,
    to: fn() -> W,
    sender: Sender<LaunchEvent>,
) -> Result<Arc<Relay>, CommandFailure> {
    let relay = Arc::new(Relay::new());
    let ours = Arc::clone(&relay);
    let pass_on = move || {
        // After an error the pipe closes, so that the rank gets an error when it writes.
        let passed = ours.run(rank, BufReader::new(from), to());
        // First: the launcher does not wait for an output that has ended.
        let _ = sender.send(LaunchEvent::Drained(passed));
        ours.ended.store(true, Ordering::Release);
    };
    failure::spawn(pass_on)?;
    Ok(relay)
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/relay.rs"]
mod tests;
