//! How a rank that gives up tells the others why, so that all ranks name one cause.

use std::time::Duration;

use super::frame::{Fields, Kind, Outgoing};
use crate::error::Error;

const LOST: u8 = 1;
const LATE: u8 = 2;
const FAILED: u8 = 3;
const FOUND: &str = "; found by rank ";
const NOBODY: u32 = u32::MAX;
/// Most bytes of text in a notice.
const MAX_TEXT_BYTES: usize = 2048;

/// The frame by which `sender` says that it gives up because of `error`.
pub(super) fn notice(sender: usize, error: &Error) -> Outgoing {
    let failed;
    let (code, rank, waited, text) = match error {
        Error::PeerLost { rank, detail } => (LOST, Some(*rank), Duration::ZERO, detail),
        Error::Timeout { rank, waited, detail, .. } => (LATE, *rank, *waited, detail),
        Error::Peer { rank, message } => (FAILED, Some(*rank), Duration::ZERO, message),
        other => {
            failed = other.to_string();
            (FAILED, None, Duration::ZERO, &failed)
        }
    };
    let rank = rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(NOBODY);
    let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
    let mut payload = vec![code];
    payload.extend(rank.to_le_bytes());
    payload.extend(waited_us.to_le_bytes());
    payload.extend(&text.as_bytes()[..text.len().min(MAX_TEXT_BYTES)]);
    Outgoing::control(Kind::Notice, sender, payload)
}

/// The error that a notice of `sender` carries.
pub(super) fn read_notice(sender: usize, payload: &[u8]) -> Error {
    let mut fields = Fields(payload);
    let (code, rank, waited_us) = (fields.array(), fields.u32(), fields.u64());
    // A notice may have been passed on: who found out is said once.
    let text = match fields.text() {
        text if text.contains(FOUND) => text,
        text => format!("{text}{FOUND}{sender}"),
    };
    let rank = rank.filter(|rank| *rank != NOBODY).map(|rank| rank as usize);
    match (code, rank) {
        (Some([LOST]), Some(rank)) => Error::PeerLost { rank, detail: text },
        (Some([LATE]), rank) => {
            let waited = Duration::from_micros(waited_us.unwrap_or_default());
            let doing = text.strip_prefix(": ").unwrap_or(&text);
            Error::exchange_timeout(rank, waited, doing)
        }
        // Passed on by who heard of it, or the sender's own.
        (Some([FAILED]), Some(rank)) => Error::Peer { rank, message: fields.text() },
        _ => Error::Peer { rank: sender, message: fields.text() },
    }
}

#[cfg(test)]
#[path = "../../tests/unit/bootstrap/notice.rs"]
mod tests;
