//! Compares the histories of two ranks outside the path of calls: equal digests mean equal calls.

use super::call::EnqueuedCall;
use super::history::{ENTRIES, History};
use crate::error::Error;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The first calls are equal; their number.
    Equal(u64),
    /// Some of the first `common` calls differ.
    Unequal { common: u64, first: Option<CallDifference> },
}

impl Compared {
    /// The error of ranks `against` and `rank`, if their calls are unequal.
    pub(super) fn error(self, against: usize, rank: usize) -> Option<Error> {
        let Self::Unequal { common, first } = self else { return None };
        Some(match first {
            Some(CallDifference { number, ours, theirs }) => Error::Mismatch {
                what: format!("call {number}"),
                against,
                ours: ours.in_full(),
                rank,
                theirs: theirs.in_full(),
            },
            None => {
                let unknown = || "unknown".to_owned();
                Error::Mismatch {
                    what: format!("one of the first {common} calls"),
                    against,
                    ours: unknown(),
                    rank,
                    theirs: unknown(),
                }
            }
        })
    }
}

/// The first call that differs, as far as the histories reach back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallDifference {
    pub(super) number: u64,
    pub(super) ours: EnqueuedCall,
    pub(super) theirs: EnqueuedCall,
}

/// Compares the calls that both ranks have enqueued; the first `equal` are known to be equal. If the ranks are
/// further apart than the entries reach, they are compared at the last digest that both have.
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
        // Overwritten meanwhile, or out of reach: a later comparison, or that of the other rank, finds the difference.
        _ => Compared::Equal(equal),
    }
}

fn first(ours: &History, theirs: &History, equal: u64, common: u64) -> Option<CallDifference> {
    let kept = common.saturating_sub(ENTRIES as u64).max(equal)..common;
    kept.into_iter().find_map(|number| {
        let (ours, theirs) = (ours.get(number)?, theirs.get(number)?);
        (ours != theirs).then_some(CallDifference { number, ours, theirs })
    })
}

#[cfg(test)]
#[path = "../../tests/unit/group/compare.rs"]
mod tests;
