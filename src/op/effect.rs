//! The effect of a call, stated independently of how the call runs. Commands, benchmarks and tests verify results with
//! the effect.

/// The facts of a call that its effect depends on. Lengths are in elements.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The number of ranks.
    pub world_size: usize,
    /// The root, or the distance between ranks.
    pub parameter: usize,
    /// The element count on which the ranks agree.
    pub count: usize,
    /// Rows of a part, for a call along a dimension; else 1.
    pub rows: usize,
    /// The number of elements that the first rank sends the second, if each pair of ranks has its own count. The number of
    /// elements of a rank's part is that of the rank and itself, if each rank has its own count.
    pub counts: Option<&'a dyn Fn(usize, usize) -> usize>,
}

/// The origin of a stretch's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The input of this rank.
    Rank(usize),
    /// The reduction of the inputs of all ranks.
    Reduced,
}

/// Elements `at..at + count` of an output: elements `start..start + count` of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Offset in the output.
    pub at: usize,
    /// Origin of the elements.
    pub source: Source,
    /// Offset in the source.
    pub start: usize,
    /// Number of elements.
    pub count: usize,
}

impl Case<'_> {
    /// One count of elements, at the start of the output.
    pub(super) fn one(&self, source: Source, start: usize) -> Vec<Stretch> {
        vec![Stretch { at: 0, source, start, count: self.count }]
    }

    /// The count of elements for each rank, in rank order, as in the source.
    pub(super) fn all_parts(&self, source: Source) -> Vec<Stretch> {
        vec![Stretch { at: 0, source, start: 0, count: self.count * self.world_size }]
    }

    /// The inputs of all ranks, side by side in every row of the output.
    pub(super) fn gathered(&self) -> Vec<Stretch> {
        let all = self.before(self.world_size);
        let pieces = (0..self.world_size).flat_map(|rank| (0..self.rows).map(move |row| (rank, row)));
        let stretch = |(rank, row)| Stretch {
            at: row * all + self.before(rank),
            source: Source::Rank(rank),
            start: row * self.width(rank),
            count: self.width(rank),
        };
        pieces.map(stretch).collect()
    }

    /// Part `rank` of every row of the source.
    pub(super) fn scattered(&self, source: Source, rank: usize) -> Vec<Stretch> {
        let (width, all) = (self.width(rank), self.before(self.world_size));
        let start = |row: usize| row * all + self.before(rank);
        (0..self.rows).map(|row| Stretch { at: row * width, source, start: start(row), count: width }).collect()
    }

    /// The elements that every rank sends to `rank`, in rank order, where each pair of ranks has its own count.
    pub(super) fn exchanged(&self, rank: usize) -> Vec<Stretch> {
        let mut at = 0;
        let stretch = |from: usize| {
            let (start, count) = ((0..rank).map(|to| self.pair(from, to)).sum(), self.pair(from, rank));
            at += count;
            Stretch { at: at - count, source: Source::Rank(from), start, count }
        };
        (0..self.world_size).map(stretch).collect()
    }

    /// Elements of a row of the part of `rank`.
    fn width(&self, rank: usize) -> usize {
        self.pair(rank, rank) / self.rows
    }

    /// Elements of a row of all parts before that of `rank`.
    fn before(&self, rank: usize) -> usize {
        (0..rank).map(|earlier| self.width(earlier)).sum()
    }

    /// The number of elements that rank `from` sends rank `to`.
    pub(super) fn pair(&self, from: usize, to: usize) -> usize {
        self.counts.map_or(self.count, |counts| counts(from, to))
    }
}
