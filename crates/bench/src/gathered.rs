//! Gathers the reports of all ranks for one size in one mode.

use std::collections::BTreeMap;

use harness::contest::turns::Mode;

/// The reports so far, by number of the size and mode.
pub(super) struct Gathered<L> {
    ranks: usize,
    said: BTreeMap<(usize, &'static str), Vec<L>>,
}

impl<L> Gathered<L> {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks, said: BTreeMap::new() }
    }

    /// The reports of all ranks, once the last one has arrived.
    pub(super) fn add(&mut self, size: usize, mode: Mode, lap: L) -> Option<Vec<L>> {
        let laps = self.said.entry((size, mode.name())).or_default();
        laps.push(lap);
        (laps.len() == self.ranks).then(|| std::mem::take(laps))
    }
}
