//! Parts of unequal lengths: a count for each rank, equal on all ranks.

use super::form::form_of;

/// The elements of each rank's part, in rank order.
#[derive(Clone, Copy)]
pub(crate) struct PartCounts<'v>(pub(crate) &'v [usize]);

impl PartCounts<'_> {
    /// Elements of all parts; `None` for more than a `usize` holds.
    pub(super) fn sum(self) -> Option<usize> {
        self.0.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))
    }

    /// Elements of the largest part.
    pub(super) fn largest(self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Elements before the part of `rank`.
    pub(super) fn start(self, rank: usize) -> usize {
        self.0[..rank].iter().sum()
    }

    /// A hash of the counts, for their comparison between ranks.
    pub(super) fn form(self) -> u64 {
        form_of(self.0.iter().map(|count| *count as u64))
    }
}
