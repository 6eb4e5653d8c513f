//! The notice by which a rank that gives up sends the cause to the others, so that all ranks name one cause.

use std::time::Duration;

use super::frame::{Fields, FrameKind, Outgoing};
use crate::error::{Error, Operation};

const LOST: u8 = 1;
const LATE: u8 = 2;
const FAILED: u8 = 3;
const DIFFERS: u8 = 4;
const ABORTED: u8 = 5;
const FOUND: &str = "; found by rank ";
const NOBODY: u32 = u32::MAX;
/// The most bytes of text in a notice.
const MAX_TEXT_BYTES: usize = 2048;
/// The most bytes of an error by [`encode`].
pub(crate) const MAX_BYTES: usize = 25 + MAX_TEXT_BYTES;
/// Separates the texts of a mismatch.
const SEPARATOR: &str = "\0";

/// An error as bytes, at most [`MAX_BYTES`]. Kinds of errors that do not matter to other ranks become text.
pub(crate) fn encode(error: &Error) -> Vec<u8> {
    let number = |rank: &usize| u32::try_from(*rank).unwrap_or(NOBODY);
    let none = (NOBODY, Duration::ZERO, 0, 0);
    let (code, (rank, waited, other, sequence), text) = match error {
        Error::PeerLost { rank, detail } => (LOST, (number(rank), Duration::ZERO, 0, 0), detail.clone()),
        Error::Timeout { operation, sequence, rank, waited, detail } => {
            let rank = rank.as_ref().map_or(NOBODY, number);
            (LATE, (rank, *waited, operation.number(), *sequence), detail.clone())
        }
        Error::Mismatch { what, against, ours, rank, theirs } => {
            let texts = [what, ours, theirs].map(|text| clipped(text, MAX_TEXT_BYTES / 3 - SEPARATOR.len()));
            (DIFFERS, (number(rank), Duration::ZERO, number(against), 0), texts.join(SEPARATOR))
        }
        Error::Peer { rank, message } => (FAILED, (number(rank), Duration::ZERO, 0, 0), message.clone()),
        Error::Aborted { detail } => (ABORTED, none, detail.clone()),
        other => (FAILED, none, other.to_string()),
    };
    let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
    let mut bytes = vec![code];
    bytes.extend(rank.to_le_bytes());
    bytes.extend(waited_us.to_le_bytes());
    bytes.extend(other.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(clipped(&text, MAX_TEXT_BYTES).as_bytes());
    bytes
}

/// The error of bytes from [`encode`]. An error that became text is a failure of `sender`, as are unknown bytes.
pub(crate) fn decode(sender: usize, bytes: &[u8]) -> Error {
    let mut fields = Fields(bytes);
    let (code, rank, waited_us) = (fields.array(), fields.u32(), fields.u64());
    let (other, sequence) = (fields.u32(), fields.u64());
    let text = fields.text();
    let rank = rank.filter(|rank| *rank != NOBODY).map(|rank| rank as usize);
    match (code, rank, other.zip(sequence)) {
        (Some([LOST]), Some(rank), _) => Error::PeerLost { rank, detail: text },
        (Some([LATE]), rank, Some((operation, sequence))) => {
            let waited = Duration::from_micros(waited_us.unwrap_or_default());
            let operation = Operation::from_number(operation).unwrap_or(Operation::Exchange);
            Error::Timeout { operation, sequence, rank, waited, detail: text }
        }
        (Some([DIFFERS]), Some(rank), Some((against, _))) => {
            let mut texts = text.split(SEPARATOR).map(str::to_owned);
            let mut next = || texts.next().unwrap_or_default();
            Error::Mismatch { what: next(), against: against as usize, ours: next(), rank, theirs: next() }
        }
        (Some([ABORTED]), _, Some(_)) => Error::Aborted { detail: text },
        // Forwarded by another rank, or the sender's own failure.
        (_, rank, _) => Error::Peer { rank: rank.unwrap_or(sender), message: text },
    }
}

/// The start of a text, of at most `bytes`, without a part of a character. `str::floor_char_boundary` needs Rust 1.91.
pub(crate) fn clipped(text: &str, bytes: usize) -> &str {
    (0..=bytes.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The frame by which `sender` reports that it gives up because of `error`.
pub(super) fn notice(sender: usize, error: &Error) -> Outgoing {
    Outgoing::control(FrameKind::Notice, sender, encode(error))
}

/// The error of a notice of `sender`. A notice may have been forwarded, so the rank that found the failure is added
/// only once. An abort may concern only the sender's group; it becomes a failure of the sender.
pub(crate) fn read_notice(sender: usize, payload: &[u8]) -> Error {
    let mut error = decode(sender, payload);
    match &mut error {
        Error::PeerLost { detail, .. } | Error::Timeout { detail, .. } if !detail.contains(FOUND) => {
            *detail += &format!("{FOUND}{sender}");
        }
        Error::Aborted { .. } => error = Error::Peer { rank: sender, message: error.to_string() },
        _ => {}
    }
    error
}

#[cfg(test)]
#[path = "../../tests/unit/bootstrap/notice.rs"]
mod tests;
