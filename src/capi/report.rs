//! Conversion of errors and panics for C++.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// An error for C++: "kind|native code|rank|message", which `cpp/core/error.cc` parses.
#[derive(Debug)]
pub struct Report(Error);

/// Runs the body of an exported function, and catches panics.
pub(super) fn guard<T>(body: impl FnOnce() -> Result<T>) -> Result<T, Report> {
    // State that a panic leaves inconsistent is reachable only through this library, whose locks do not poison and
    // whose groups fail as a whole.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(Report),
        Err(payload) => {
            let words = payload.downcast_ref::<&str>().copied();
            let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let message = format!("panicked: {}", words.unwrap_or("without words"));
            // Dropping a payload may panic again, so it is leaked; panics of this library do not have such payloads.
            std::mem::forget(payload);
            Err(Report(Error::internal(message)))
        }
    }
}

/// The number of `symmetra::ErrorKind`, the native code and the rank of an error; the only mapping.
fn parts(error: &Error) -> (u32, i64, Option<usize>) {
    match error {
        Error::Internal { .. } => (0, 0, None),
        Error::InvalidArgument { .. } => (1, 0, None),
        Error::Unsupported { .. } => (2, 0, None),
        Error::OutOfMemory { .. } => (3, 0, None),
        Error::Device { code, .. } => (4, *code, None),
        Error::Nccl { code, .. } => (4, i64::from(*code), None),
        Error::System { errno, .. } => (5, i64::from(*errno), None),
        Error::Bootstrap { .. } => (6, 0, None),
        Error::Timeout { rank, .. } => (7, 0, *rank),
        Error::PeerLost { rank, .. } => (8, 0, Some(*rank)),
        Error::Aborted { .. } => (9, 0, None),
        Error::Mismatch { rank, .. } => (10, 0, Some(*rank)),
        Error::Closed => (11, 0, None),
        Error::NotRegistered { .. } => (12, 0, None),
        Error::Peer { rank, .. } => (13, 0, Some(*rank)),
        Error::Routing { rank, .. } => (14, 0, Some(*rank)),
        Error::Capacity { rank, .. } | Error::Tokens { rank, .. } => (15, 0, Some(*rank)),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, native_code, rank) = parts(&self.0);
        let rank = rank.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
        write!(out, "{kind}|{native_code}|{rank}|")?;
        match &self.0 {
            // The text of the caller's exception, unchanged.
            Error::Bootstrap { message } => out.write_str(message),
            error => write!(out, "{error}"),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/capi/report.rs"]
mod tests;
