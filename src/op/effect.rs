//! What a call leaves, stated apart from how the call runs: commands, benchmarks and tests verify by it.

/// A call as its effect depends on it. Lengths are in elements.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// How many ranks there are.
    pub world_size: usize,
    /// The root, or the distance between ranks.
    pub parameter: usize,
    /// The count that the ranks agree on.
    pub count: usize,
    /// Rows of a part, for a call along a dimension; else 1.
    pub rows: usize,
    /// How many elements one rank gives another, where each pair of ranks has its own count.
    pub counts: Option<&'a dyn Fn(usize, usize) -> usize>,
}

/// Whose elements a stretch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those of the input of this rank.
    Rank(usize),
    /// The reduction of the inputs of all ranks.
    Reduced,
}

/// Elements `at..at + count` of an output: those of the source from element `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where in the output.
    pub at: usize,
    /// Whose elements.
    pub source: Source,
    /// Where in the source.
    pub start: usize,
    /// How many.
    pub count: usize,
}

impl Case<'_> {
    /// One count of the source's, at the start of the output.
    pub(super) fn one(&self, source: Source, start: usize) -> Vec<Stretch> {
        vec![Stretch { at: 0, source, start, count: self.count }]
    }

    /// The inputs of all ranks, which lie side by side in every row of the output.
    pub(super) fn gathered(&self) -> Vec<Stretch> {
        let width = self.count / self.rows;
        let pieces = (0..self.world_size).flat_map(|rank| (0..self.rows).map(move |row| (rank, row)));
        let stretch = |(rank, row)| Stretch {
            at: (row * self.world_size + rank) * width,
            source: Source::Rank(rank),
            start: row * width,
            count: width,
        };
        pieces.map(stretch).collect()
    }

    /// Part `rank` of every row of the source.
    pub(super) fn scattered(&self, source: Source, rank: usize) -> Vec<Stretch> {
        let width = self.count / self.rows;
        let start = |row: usize| (row * self.world_size + rank) * width;
        (0..self.rows).map(|row| Stretch { at: row * width, source, start: start(row), count: width }).collect()
    }

    /// How many elements rank `from` gives rank `to`.
    pub(super) fn pair(&self, from: usize, to: usize) -> usize {
        self.counts.map_or(self.count, |counts| counts(from, to))
    }
}
