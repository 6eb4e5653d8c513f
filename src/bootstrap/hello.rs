//! The messages that ranks exchange when they meet. The comparison has the same outcome on all ranks.

use std::time::Instant;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::all_gather::Bootstrap;
use crate::error::{Error, Result};
use crate::settings::written;

/// Settings by name, which must be equal on every rank.
pub type Agreed = Vec<(String, String)>;

/// The text of a unique id, from the rank that listens at its address, or the reason why the rank cannot listen. The other ranks
/// send `None`.
pub(crate) type SentId = Option<std::result::Result<String, String>>;

/// A rank's number and world size, as its bootstrap gives them.
pub(crate) type ClaimedPlace = [usize; 2];

/// Sends `own` to every rank and returns the values of all ranks, in rank order. Collective. `what` names the purpose,
/// for example "to split a group": ranks whose purposes differ get an error.
pub fn tell<T: Serialize + DeserializeOwned>(
    bootstrap: &mut (impl Bootstrap + ?Sized),
    what: &str,
    own: &T,
    deadline: Instant,
) -> Result<Vec<T>> {
    let own = written(serde_json::to_vec(&(what, own)))?;
    bootstrap.announce(what);
    let all = bootstrap.all_gather(&own, deadline)?;
    check_count(all.len(), bootstrap.world_size())?;
    let own = bootstrap.rank();
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        let differs = |theirs: Option<&str>| at_odds(what, own, rank, theirs);
        let (theirs, _): (String, IgnoredAny) = serde_json::from_slice(bytes).map_err(|_| differs(None))?;
        if theirs != what {
            return Err(differs(Some(&theirs)));
        }
        serde_json::from_slice(bytes)
            .map(|(_, told): (IgnoredAny, T)| told)
            .map_err(|error| Error::bootstrap(format!("rank {rank} answered {what} with something else: {error}")))
    };
    all.iter().enumerate().map(read).collect()
}

/// The error of ranks that made different collective calls, `what` and perhaps `theirs`.
pub(crate) fn at_odds(what: &str, against: usize, rank: usize, theirs: Option<&str>) -> Error {
    let name = |what: &str| what.strip_prefix("to ").unwrap_or(what).to_owned();
    let theirs = theirs.map_or_else(|| "another call".to_owned(), name);
    Error::unlike_calls(against, &name(what), rank, &theirs)
}

/// Compares the outcomes of all ranks. Returns `local` if every rank succeeded, else this rank's error, else
/// [`Error::Peer`] with the lowest rank that failed. Always calls `all_gather`.
pub(crate) fn together<T>(
    what: &str,
    local: Result<T>,
    all_gather: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>>,
) -> Result<T> {
    // No bytes mean success; the text of an error is never empty.
    let words = local.as_ref().err().map(|error| format!("{what}: {error}")).unwrap_or_default();
    let all = all_gather(words.as_bytes());
    // The rank that this rank lost may have left because of the rank that the others name.
    if let (Err(Error::PeerLost { .. }), Err(cause @ Error::PeerLost { .. })) = (&local, &all) {
        return Err(cause.clone());
    }
    let value = local?;
    let all = all?;
    match all.iter().enumerate().find(|(_, words)| !words.is_empty()) {
        None => Ok(value),
        // The text belongs to another call. This rank sent no bytes.
        Some((rank, words)) if !words.starts_with(what.as_bytes()) => {
            let well = all.iter().position(Vec::is_empty).unwrap_or_default();
            Err(at_odds(what, well, rank, None))
        }
        Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(words).into_owned() }),
    }
}

/// Checks that an all-gather returned the bytes of every rank; the bootstrap may be the program's.
pub(super) fn check_count(answers: usize, world_size: usize) -> Result<()> {
    if answers == world_size {
        return Ok(());
    }
    Err(Error::bootstrap(format!("an all-gather of {world_size} ranks gave {answers}")))
}

/// Fails unless all ranks have one world size, and the number of each rank is its index in the all-gather. A rank
/// without a place is taken to be at its index.
pub(crate) fn check_places(all: impl Iterator<Item = Option<ClaimedPlace>> + Clone) -> Result<()> {
    let mut places = all.enumerate().filter_map(|(rank, place)| Some((rank, place?)));
    let Some((against, [_, world])) = places.clone().next() else { return Ok(()) };
    if let Some((rank, [_, theirs])) = places.clone().find(|(_, [_, theirs])| *theirs != world) {
        let (ours, theirs) = (world.to_string(), theirs.to_string());
        return Err(Error::Mismatch { what: "the world size".to_owned(), against, ours, rank, theirs });
    }
    places.find(|(rank, [number, _])| number != rank).map_or(Ok(()), |(rank, [number, _])| {
        Err(Error::bootstrap(format!(
            "the all-gather gave what rank {number} sent in the place of rank {rank}: ranks have the numbers 0 to {}, each \
             once, and the all-gather gives what the ranks send in their order",
            world - 1
        )))
    })
}

/// Fails with the first complaint of a rank other than `own`.
pub fn check_complaints<'a>(own: usize, complaints: impl Iterator<Item = Option<&'a String>>) -> Result<()> {
    for (rank, complaint) in complaints.enumerate() {
        if let (Some(message), true) = (complaint, rank != own) {
            return Err(Error::Peer { rank, message: message.clone() });
        }
    }
    Ok(())
}

/// Fails with the first difference between rank 0 and another rank.
pub fn check_agreed<'a>(mut all: impl Iterator<Item = &'a Agreed>) -> Result<()> {
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
#[path = "../../tests/unit/bootstrap/hello.rs"]
mod tests;
