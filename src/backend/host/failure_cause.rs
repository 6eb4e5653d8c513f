//! The cause of a failure in a group that spans hosts. One failed rank makes other ranks fail, and these detect only
//! each other. So each rank reports its information once: the bootstrap knows lost ranks, each host knows its own
//! ranks, and an aborting rank knows its reason.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::final_exchange::LastWords;
use crate::bootstrap::notice::{encode, read_notice};
use crate::error::{BY_THIS_RANK, Error};

/// The error on a rank that aborts a group.
pub(crate) fn aborted(reason: impl fmt::Display) -> Error {
    Error::Aborted { detail: format!("{BY_THIS_RANK}: {reason}") }
}

/// A rank's report on a group's failure, with world ranks. Empty if the rank failed because of other ranks.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Word {
    /// The lost rank.
    lost: Option<usize>,
    /// The ranks of the group that this rank aborted, and the reason.
    aborted: Option<(Vec<usize>, String)>,
    /// The ranks of the group in which this rank waited in vain, and the [`encode`]d timeout, which has rank numbers of
    /// the group.
    waited: Option<(Vec<usize>, Vec<u8>)>,
}

impl Word {
    /// The report of a rank in the group of `ranks`. `error` has rank numbers of the group.
    pub(crate) fn of(error: &Error, ranks: &[usize]) -> Self {
        match error {
            Error::PeerLost { rank, .. } => Self { lost: ranks.get(*rank).copied(), ..Self::default() },
            Error::Aborted { detail } => {
                let reason = detail.strip_prefix(BY_THIS_RANK).and_then(|rest| rest.strip_prefix(": "));
                Self { aborted: reason.map(|reason| (ranks.to_vec(), reason.to_owned())), ..Self::default() }
            }
            Error::Timeout { rank: Some(_), .. } => {
                Self { waited: Some((ranks.to_vec(), encode(error))), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    /// Whether other ranks may have more information on the cause. A rank that waited in vain may have waited for a
    /// rank that is lost.
    pub(crate) fn says_nothing(&self) -> bool {
        self.lost.is_none() && self.aborted.is_none()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses a report. A rank that closes sends no bytes.
    fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// The error of rank `own` of a failed group of these ranks, from its own `error` and the reports of all ranks.
pub(crate) fn verdict(own: usize, ranks: &[usize], error: Error, words: LastWords) -> Error {
    let place = |rank: usize| ranks.binary_search(&rank).ok();
    let words: Vec<Word> = match words {
        Ok(words) => words.iter().map(|bytes| Word::read(bytes)).collect(),
        Err(Error::PeerLost { rank, .. }) => vec![Word { lost: Some(rank), ..Word::default() }],
        Err(_) => Vec::new(),
    };
    if let Some(rank) = words.iter().filter_map(|word| word.lost).find_map(place) {
        return Error::PeerLost { rank, detail: format!(": {error}") };
    }
    let aborted = words.iter().enumerate().find_map(|(rank, word)| {
        let (_, reason) = word.aborted.as_ref().filter(|(group, _)| group == ranks)?;
        Some((place(rank)?, reason))
    });
    if let Some((rank, reason)) = aborted {
        return Error::Aborted { detail: format!(": by rank {rank}: {reason}") };
    }
    if matches!(error, Error::Timeout { .. }) {
        return error;
    }
    // Connections to a rank that gave up are closed: errors of connections are consequences.
    let waited = words.iter().enumerate().find_map(|(rank, word)| {
        let (_, timeout) = word.waited.as_ref().filter(|(group, _)| group == ranks)?;
        Some((place(rank)?, timeout))
    });
    waited.map_or(error, |(by, timeout)| read_notice(by, timeout).seen_by(own, by))
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/failure_cause.rs"]
mod tests;
