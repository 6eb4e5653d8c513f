//! Compares the histories of two ranks off the path of calls: equal digests mean equal calls.

use super::call::Call;
use super::history::{ENTRIES, History};

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// As many first calls are equal.
    Equal(u64),
    /// Among the first calls, as many as `common`, some differ.
    Unequal { common: u64, first: Option<Difference> },
}

/// The first call that differs, as far as the histories reach back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) number: u64,
    pub(super) ours: Call,
    pub(super) theirs: Call,
}

/// Compares the calls that both ranks have enqueued, of which the first `equal` are known to be equal. A rank that is
/// further ahead than its entries reach is compared at the last digest that both have.
pub(super) fn compare(ours: &History, theirs: &History, equal: u64) -> Compared {
    let (own, other) = (ours.enqueued(), theirs.enqueued());
    let (fewer, entries) = (own.min(other), ENTRIES as u64);
    let common = if own.abs_diff(other) < entries { fewer } else { fewer - fewer % entries };
    if common <= equal {
        return Compared::Equal(equal);
    }
    match (ours.digest_of(common), theirs.digest_of(common)) {
        (Some(own), Some(other)) if own != other => {
            Compared::Unequal { common, first: first(ours, theirs, equal, common) }
        }
        (Some(_), Some(_)) => Compared::Equal(common),
        // Overwritten since, or too far behind: a later comparison, or the other rank's, finds what differs.
        _ => Compared::Equal(equal),
    }
}

fn first(ours: &History, theirs: &History, equal: u64, common: u64) -> Option<Difference> {
    let kept = common.saturating_sub(ENTRIES as u64).max(equal)..common;
    kept.into_iter().find_map(|number| {
        let (ours, theirs) = (ours.get(number)?, theirs.get(number)?);
        (ours != theirs).then_some(Difference { number, ours, theirs })
    })
}

#[cfg(test)]
#[path = "../../tests/unit/group/compare.rs"]
mod tests;
