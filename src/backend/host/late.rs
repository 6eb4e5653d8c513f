//! Timeouts of engines between hosts: an engine knows neither the operation, nor the group's rank numbers, nor the time
//! waited.

use std::time::Duration;

use crate::error::{Error, Operation};

/// Completes the timeout of an exchange with the limit `limit`. `rank_of` returns the rank in the group, and its place,
/// for the number in the engine.
pub(super) fn in_group(error: Error, limit: Duration, rank_of: impl FnOnce(usize) -> (usize, String)) -> Error {
    match error {
        Error::Timeout { operation, sequence, rank, detail, .. } => {
            let (rank, place) = rank.map(rank_of).map_or((None, String::new()), |(rank, place)| (Some(rank), place));
            Error::Timeout { operation, sequence, rank, waited: limit, detail: format!("{place}{detail}") }
        }
        other => other,
    }
}

/// Names the operation in which an exchange timed out.
pub(crate) fn in_operation(error: Error, operation: Operation, sequence: u64) -> Error {
    match error {
        Error::Timeout { operation: Operation::Exchange, rank, waited, detail, .. } => {
            Error::Timeout { operation, sequence, rank, waited, detail }
        }
        other => other,
    }
}
