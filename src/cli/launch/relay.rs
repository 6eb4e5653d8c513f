//! Passes a rank's output on in whole lines, each with its rank.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::Sender;

use super::Event;
use crate::failure::Failure;

/// A line is broken here, so that one without end fills no memory.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Starts passing on what `child` writes, unless it writes to our output itself. Returns how
/// many outputs will be reported as drained.
pub(super) fn start(rank: usize, child: &mut Child, sender: &Sender<Event>) -> Result<usize, Failure> {
    let outputs = [
        child.stdout.take().map(|pipe| spawn(rank, pipe, std::io::stdout, sender.clone())),
        child.stderr.take().map(|pipe| spawn(rank, pipe, std::io::stderr, sender.clone())),
    ];
    outputs.into_iter().flatten().try_fold(0, |count, started| started.map(|()| count + 1))
}

fn spawn<W: Write + 'static>(
    rank: usize,
    from: impl Read + Send + 'static,
    to: fn() -> W,
    sender: Sender<Event>,
) -> Result<(), Failure> {
    let pass_on = move || {
        // An error of ours ends the pipe, which tells the rank that nobody reads.
        let _ = relay(rank, BufReader::new(from), to());
        let _ = sender.send(Event::Drained);
    };
    std::thread::Builder::new().spawn(pass_on).map(drop).map_err(Failure::doing("start a thread"))
}

/// Writes each line at once, and so whole: the standard streams are locked for a write.
fn relay(rank: usize, mut from: impl BufRead, mut to: impl Write) -> std::io::Result<()> {
    let prefix = format!("[{rank}] ");
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend(prefix.as_bytes());
        if from.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        to.write_all(&line)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        relay(3, text, &mut out).unwrap();
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
