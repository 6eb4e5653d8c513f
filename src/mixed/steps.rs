//! The steps that operations over a grid consist of: collectives over groups of the grid, sums of gathered parts, and copies.

use std::fmt;

use super::grid::GridPart;
use crate::op::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, Op, REDUCE_SCATTER};

/// A range of elements of an operand of a rank, or of its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementRange {
    pub(super) space: Space,
    pub(super) start: usize,
    pub(super) elems: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Input,
    Output,
    Work,
}

impl ElementRange {
    /// A placeholder: an empty range.
    pub(super) const NONE: Self = Self { space: Space::Work, start: 0, elems: 0 };

    /// Part `number` of parts of `elems` elements.
    pub(super) fn part(self, number: usize, elems: usize) -> Self {
        Self { start: self.start + number * elems, elems, ..self }
    }

    /// The first elements.
    pub(super) fn first(self, elems: usize) -> Self {
        Self { elems, ..self }
    }
}

/// A collective that can be a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridCollective {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

impl GridCollective {
    pub(super) fn op(self) -> &'static Op {
        match self {
            Self::AllReduce => &ALL_REDUCE,
            Self::AllGather => &ALL_GATHER,
            Self::ReduceScatter => &REDUCE_SCATTER,
            Self::AllToAll => &ALL_TO_ALL,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridStep {
    /// `rows` above 1: the collective runs along the second dimension of a tensor of `rows` rows.
    Collective {
        kind: GridCollective,
        part: GridPart,
        from: ElementRange,
        into: ElementRange,
        rows: usize,
    },
    /// An all-reduce of each tensor group of a host, whose results all ranks of the host receive. The input has `rows`
    /// rows, and the results of the groups are next to each other in each row.
    ReduceApart {
        groups: usize,
        from: ElementRange,
        into: ElementRange,
        rows: usize,
    },
    /// A reduce-scatter of one part for each tensor group of a host. All ranks of the group receive the part.
    ReduceShared {
        groups: usize,
        from: ElementRange,
        into: ElementRange,
    },
    /// Reduces `parts` contiguous parts.
    Sum {
        parts: usize,
        from: ElementRange,
        into: ElementRange,
    },
    Copy {
        from: ElementRange,
        into: ElementRange,
    },
}

impl GridStep {
    /// Whether the step reduces.
    pub(super) fn reduces(&self) -> bool {
        match self {
            Self::Collective { kind, .. } => matches!(kind, GridCollective::AllReduce | GridCollective::ReduceScatter),
            Self::ReduceApart { .. } | Self::ReduceShared { .. } | Self::Sum { .. } => true,
            Self::Copy { .. } => false,
        }
    }
}

impl fmt::Display for GridStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective { kind, part, rows, .. } => {
                write!(out, "{} over {}", kind.op().operation, part.name())?;
                if *rows > 1 {
                    write!(out, ", along {rows} rows")?;
                }
                Ok(())
            }
            Self::ReduceApart { groups, .. } => {
                write!(
                    out,
                    "{} of each of {groups} tensor groups, over {}",
                    ALL_REDUCE.operation,
                    GridPart::Local.name()
                )
            }
            Self::ReduceShared { groups, .. } => {
                write!(
                    out,
                    "{} to each of {groups} tensor groups, over {}",
                    REDUCE_SCATTER.operation,
                    GridPart::Local.name()
                )
            }
            Self::Sum { parts, .. } => write!(out, "sum of {parts} parts"),
            Self::Copy { .. } => out.write_str("copy"),
        }
    }
}
