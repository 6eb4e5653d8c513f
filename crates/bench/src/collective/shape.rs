//! The work of a comparison: a collective of a size, its operands, and the contents that they must have afterwards.

use symmetra::op::{Case, Size, Stretch};
use symmetra::{Communicator, Dtype};

use harness::collective::CollectiveCommand;
use harness::comparison::ROOT;

/// A collective whose input has `elems` elements on every rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveShape {
    pub(crate) collective: CollectiveCommand,
    pub(crate) elems: usize,
    pub(crate) ranks: usize,
}

impl CollectiveShape {
    /// The elements that a rank sends to each other rank, or keeps of an operand with a part for every rank.
    fn part_elems(self) -> usize {
        self.elems / self.ranks
    }

    pub(crate) fn output_elems(self) -> usize {
        match self.collective {
            CollectiveCommand::AllGather => self.elems * self.ranks,
            CollectiveCommand::ReduceScatter => self.part_elems(),
            _ => self.elems,
        }
    }

    /// Elements of the larger operand.
    pub(crate) fn larger_elems(self) -> usize {
        self.elems.max(self.output_elems())
    }

    /// The contents of the output of a rank afterwards.
    pub(crate) fn stretches(self, rank: usize) -> Vec<Stretch> {
        let op = self.collective.op();
        let count = if op.input.size == Size::PerRank { self.part_elems() } else { self.elems };
        (op.effect)(&Case { world_size: self.ranks, parameter: ROOT, count, rows: 1, counts: None }, rank)
    }

    /// Whether the output of a rank is its input.
    pub(crate) fn gives_output(self, rank: usize) -> bool {
        self.collective == CollectiveCommand::Broadcast && rank == ROOT
    }

    /// The transport of a collective other than an all-reduce.
    pub(crate) fn transport(self, communicator: &Communicator, dtype: Dtype) -> String {
        let elems = match self.collective {
            CollectiveCommand::ReduceScatter | CollectiveCommand::AllToAll => self.part_elems(),
            _ => self.elems,
        };
        let ranges = self.collective.explain(communicator, dtype, true);
        let range = ranges.at((elems * dtype.bytes()) as u64);
        range.map_or_else(String::new, |range| range.choice.to_string())
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/expected.rs"]
mod tests;
