//! Why a group that spans hosts has failed: a rank that fails makes others fail in its wake, and those see only each
//! other. So each says once what it knows of its own. The bootstrap's connections tell of the dead, and each host knows
//! its own; who aborted knows that.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::final_exchange::Words;
use crate::error::Error;

/// What the detail of an abort starts with on the rank that aborts.
const BY_THIS_RANK: &str = ": by this rank: ";

/// What a rank that aborts a group fails with.
pub(crate) fn aborted(reason: impl fmt::Display) -> Error {
    Error::Aborted { detail: format!("{BY_THIS_RANK}{reason}") }
}

/// What a rank says of why a group of it failed, by the world's numbers. Nothing where it failed in the wake of others.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Word {
    /// Who died.
    lost: Option<usize>,
    /// The ranks of the group that this rank aborted, and why.
    aborted: Option<(Vec<usize>, String)>,
}

impl Word {
    /// Of the group of these ranks, whose numbers `error` has.
    pub(crate) fn of(error: &Error, ranks: &[usize]) -> Self {
        match error {
            Error::PeerLost { rank, .. } => Self { lost: ranks.get(*rank).copied(), aborted: None },
            Error::Aborted { detail } => {
                let reason = detail.strip_prefix(BY_THIS_RANK);
                Self { lost: None, aborted: reason.map(|reason| (ranks.to_vec(), reason.to_owned())) }
            }
            _ => Self::default(),
        }
    }

    pub(crate) fn says_nothing(&self) -> bool {
        self.lost.is_none() && self.aborted.is_none()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// A rank that leaves says no bytes at all.
    fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// What the group of these ranks, which has failed here with `error`, failed with by what all said.
pub(crate) fn verdict(ranks: &[usize], error: Error, words: Words) -> Error {
    let place = |rank: usize| ranks.binary_search(&rank).ok();
    let words: Vec<Word> = match words {
        Ok(words) => words.iter().map(|bytes| Word::read(bytes)).collect(),
        Err(Error::PeerLost { rank, .. }) => vec![Word { lost: Some(rank), aborted: None }],
        Err(_) => Vec::new(),
    };
    if let Some(rank) = words.iter().filter_map(|word| word.lost).find_map(place) {
        return Error::PeerLost { rank, detail: format!(": {error}") };
    }
    let aborted = words.iter().enumerate().find_map(|(rank, word)| {
        let (_, reason) = word.aborted.as_ref().filter(|(group, _)| group == ranks)?;
        Some((place(rank)?, reason))
    });
    match aborted {
        Some((rank, reason)) => Error::Aborted { detail: format!(": by rank {rank}: {reason}") },
        None => error,
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/failure_cause.rs"]
mod tests;
