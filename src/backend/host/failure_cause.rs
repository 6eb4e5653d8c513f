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
mod tests {
    use super::*;

    #[test]
    fn what_ranks_know_makes_the_error_of_those_that_fail_in_their_wake() {
        let broken = || Error::bootstrap("a connection broke");
        let lost = |rank| Error::PeerLost { rank, detail: ": killed".to_owned() };
        let group = [1, 3, 4];
        let word = |error: &Error, ranks: &[usize]| Word::of(error, ranks).to_bytes();
        let silent = || vec![Vec::new(), word(&broken(), &group), Vec::new(), b"nonsense".to_vec(), Vec::new()];
        let heard = |rank: usize, bytes: Vec<u8>| {
            let mut words = silent();
            words[rank] = bytes;
            verdict(&group, broken(), Ok(words))
        };
        let gone = Error::PeerLost { rank: 2, detail: ": bootstrap: a connection broke".to_owned() };
        assert_eq!(heard(1, word(&lost(2), &group)), gone);
        assert_eq!(heard(0, word(&lost(1), &[0, 4])), gone, "whoever knows");
        assert_eq!(verdict(&group, broken(), Err(lost(4))), gone);
        let ended = Error::Aborted { detail: ": by rank 1: enough".to_owned() };
        assert_eq!(heard(3, word(&aborted("enough"), &group)), ended);
        for unknown in [
            heard(0, word(&lost(0), &[0, 4])),
            heard(3, word(&aborted("enough"), &[3, 4])),
            heard(3, word(&Error::Aborted { detail: ": by rank 0".to_owned() }, &group)),
            verdict(&group, broken(), Err(lost(0))),
            verdict(&group, broken(), Err(broken())),
        ] {
            assert_eq!(unknown, broken());
        }
    }
}
