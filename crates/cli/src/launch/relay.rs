//! Passes a rank's output on in whole lines, each with its rank.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Event;
use crate::failure::Failure;

/// A line is broken here, so that one without end fills no memory.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The most that a pipe holds of what was written before the last rank ended.
const PIPE_BYTES: u64 = 1 << 20;

/// One of a rank's outputs on its way.
pub(super) struct Relay {
    /// Since when there has been nothing to pass on; none while there is.
    idle_since: Mutex<Option<Instant>>,
    passed_bytes: AtomicU64,
    ended: AtomicBool,
}

impl Relay {
    fn new() -> Self {
        Self { idle_since: Mutex::new(None), passed_bytes: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    /// Whether it may still have something of the ranks', who ended at `end`, when it had passed on so much. What
    /// has held the pipe open since without a word, or talks on and on, are children of theirs.
    pub(super) fn lags(&self, end: Instant, end_bytes: u64, patience: Duration) -> bool {
        let quiet = self.idle_since.lock().is_some_and(|since| since.max(end).elapsed() >= patience);
        !self.ended.load(Ordering::Acquire) && !quiet && self.passed_bytes() - end_bytes <= PIPE_BYTES
    }

    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed_bytes.load(Ordering::Acquire)
    }

    /// Writes each line at once, and so whole: the standard streams are locked for a write.
    fn run(&self, rank: usize, mut from: impl BufRead, mut to: impl Write) -> std::io::Result<()> {
        let prefix = format!("[{rank}] ");
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend(prefix.as_bytes());
            *self.idle_since.lock() = Some(Instant::now());
            let read_bytes = from.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
            *self.idle_since.lock() = None;
            if read_bytes == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            to.write_all(&line)?;
            to.flush()?;
            self.passed_bytes.fetch_add(read_bytes as u64, Ordering::AcqRel);
        }
    }
}

/// Starts passing on what `child` writes, unless it writes to our output itself.
pub(super) fn start(rank: usize, child: &mut Child, sender: &Sender<Event>) -> Result<Vec<Arc<Relay>>, Failure> {
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
    sender: Sender<Event>,
) -> Result<Arc<Relay>, Failure> {
    let relay = Arc::new(Relay::new());
    let ours = Arc::clone(&relay);
    let pass_on = move || {
        // An error of ours ends the pipe, which tells the rank that nobody reads.
        let _ = ours.run(rank, BufReader::new(from), to());
        ours.ended.store(true, Ordering::Release);
        let _ = sender.send(Event::Drained);
    };
    std::thread::Builder::new().spawn(pass_on).map_err(Failure::doing("start a thread"))?;
    Ok(relay)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Relay::new().run(3, text, &mut out).unwrap();
        out
    }

    #[test]
    fn every_line_gets_its_rank() {
        assert_eq!(relayed(b""), b"");
        assert_eq!(relayed(b"one\n\ntwo"), b"[3] one\n[3] \n[3] two\n");
        assert_eq!(relayed(b"\xff\xfe\n"), b"[3] \xff\xfe\n");
    }

    #[test]
    fn a_line_without_end_is_broken() {
        let out = relayed(&vec![b'x'; 3 * MAX_LINE_BYTES as usize / 2]);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 2);
    }
}
