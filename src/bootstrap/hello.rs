//! What ranks tell each other as they meet, and how they compare it: the same outcome on every rank.

use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Bootstrap;
use crate::error::{Error, Result};

/// Settings by name, which must be equal on every rank.
pub(crate) type Agreed = Vec<(String, String)>;

/// Tells every rank `own` and returns what every rank told, in rank order. Collective.
pub(crate) fn tell<T: Serialize + DeserializeOwned>(
    bootstrap: &mut (impl Bootstrap + ?Sized),
    own: &T,
    deadline: Instant,
) -> Result<Vec<T>> {
    let own = serde_json::to_vec(own).map_err(|error| Error::Internal { message: error.to_string() })?;
    let all = bootstrap.all_gather(&own, deadline)?;
    check_count(all.len(), bootstrap.world_size())?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::bootstrap(format!("rank {rank} answered with something else: {error}")))
    };
    all.iter().enumerate().map(read).collect()
}

/// Compares notes after each rank did something on its own: `local` if every rank succeeded; else this
/// rank's error, or [`Error::Peer`] naming the lowest rank that failed. `all_gather` is called in any case.
pub(crate) fn together<T>(
    what: &str,
    local: Result<T>,
    all_gather: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>>,
) -> Result<T> {
    // Success is no bytes at all; an error's text is never empty.
    let words = local.as_ref().err().map(|error| format!("{what}: {error}")).unwrap_or_default();
    let all = all_gather(words.as_bytes());
    let value = local?;
    match all?.iter().enumerate().find(|(_, words)| !words.is_empty()) {
        None => Ok(value),
        Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(words).into_owned() }),
    }
}

/// Refuses an all-gather that does not answer for every rank: the bootstrap may be the caller's.
pub(super) fn check_count(answers: usize, world_size: usize) -> Result<()> {
    if answers == world_size {
        return Ok(());
    }
    Err(Error::bootstrap(format!("an all-gather of {world_size} ranks gave {answers}")))
}

/// The first complaint of another rank than `own`, if there is any.
pub(crate) fn check_complaints<'a>(own: usize, complaints: impl Iterator<Item = Option<&'a String>>) -> Result<()> {
    for (rank, complaint) in complaints.enumerate() {
        if let (Some(message), true) = (complaint, rank != own) {
            return Err(Error::Peer { rank, message: message.clone() });
        }
    }
    Ok(())
}

/// The first difference to rank 0, if there is any.
pub(crate) fn check_agreed<'a>(mut all: impl Iterator<Item = &'a Agreed>) -> Result<()> {
    let Some(first) = all.next() else { return Ok(()) };
    for (theirs, rank) in all.zip(1..) {
        if let Some((ours, theirs)) = first.iter().zip(theirs).find(|(ours, theirs)| ours != theirs) {
            let what = ours.0.clone();
            return Err(Error::Mismatch { what, against: 0, ours: ours.1.clone(), rank, theirs: theirs.1.clone() });
        }
        if first.len() != theirs.len() {
            let what = "what to agree on".to_owned();
            let count = |settings: &Agreed| format!("{} settings", settings.len());
            return Err(Error::Mismatch { what, against: 0, ours: count(first), rank, theirs: count(theirs) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bootstrap of the caller's that answers for one rank whatever the world size is.
    struct Alone(usize);

    impl Bootstrap for Alone {
        fn rank(&self) -> usize {
            0
        }
        fn world_size(&self) -> usize {
            self.0
        }
        fn all_gather(&mut self, bytes: &[u8], _: Instant) -> Result<Vec<Vec<u8>>> {
            Ok(vec![bytes.to_vec()])
        }
    }

    #[test]
    fn who_does_not_answer_for_all_is_refused() {
        assert_eq!(tell(&mut Alone(1), &7, Instant::now()).unwrap(), [7]);
        let message = tell(&mut Alone(2), &7, Instant::now()).unwrap_err().to_string();
        assert!(message.contains("of 2 ranks gave 1"), "{message}");
    }

    #[test]
    fn the_first_complaint_and_the_first_difference() {
        let complaint = "full".to_owned();
        let all = || [None, Some(&complaint)].into_iter();
        assert_eq!(check_complaints(0, all()), Err(Error::Peer { rank: 1, message: complaint.clone() }));
        assert_eq!(check_complaints(1, all()), Ok(()));
        let settings =
            |values: &[&str]| -> Agreed { values.iter().map(|value| ("size".into(), (*value).into())).collect() };
        let check = |all: &[Agreed]| check_agreed(all.iter()).map_err(|error| error.to_string());
        assert_eq!(check(&[settings(&["1"]), settings(&["1"])]), Ok(()));
        assert!(check(&[settings(&["1"]), settings(&["1"]), settings(&["2"])]).unwrap_err().contains("ranks 0 and 2"));
        assert!(check(&[settings(&["1"]), settings(&["1", "1"])]).unwrap_err().contains("1 settings and 2 settings"));
    }
}
