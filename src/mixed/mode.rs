//! The operations of a grid, their modes, and which grid has which operations and modes. Pure.

use std::fmt;

use super::grid::GridSizes;
use crate::error::{Error, Result};
use crate::settings::named;

/// An operation over a grid. `N`: elements of `x` or of a slice; `dp`: the number of data ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MixedOperation {
    /// `N -> N`: the sum over all ranks. On grids without data parallelism.
    AllReduce,
    /// `N -> dp N`: block `d` is `x` of data rank `d`. On grids without tensor parallelism.
    AllGather,
    /// `dp N -> N`: the sum over all ranks of this data rank's slice. On grids without tensor parallelism.
    ReduceScatter,
    /// `N -> dp N`: block `d` is the sum over the ranks of data rank `d`. On grids with both.
    AllReduceAllGather,
    /// `dp N -> N`: the sum over all ranks of this data rank's slice. On grids with both.
    ReduceScatterAllReduce,
}

/// How an operation runs. [`Mixed::explain`](super::Mixed::explain) prints the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MixedMode {
    /// The choice of the communicator's tuning, or of the built-in table, for the size.
    #[default]
    Auto,
    /// Each rank of a host receives everything that it sums, and each host receives everything from the hosts.
    OneShot,
    /// Each rank of a host reduces a share and sends it to all hosts; each host reduces everything.
    TwoShot,
    /// As two-shot, but each host also reduces only a share and forwards it. On grids whose tensor groups span hosts.
    TwoShotAcross,
    /// One collective over the world, followed by sums in rank order.
    OneCollective,
    /// One collective of the tensor group and one of the data group. On grids with both.
    TwoCollectives,
}

impl MixedOperation {
    /// All operations.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllReduceAllGather, Self::ReduceScatterAllReduce];

    /// `all-reduce`, `all-gather`, `reduce-scatter`, `all-reduce-all-gather` or `reduce-scatter-all-reduce`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduceAllGather => "all-reduce-all-gather",
            Self::ReduceScatterAllReduce => "reduce-scatter-all-reduce",
        }
    }

    /// Whether the operation reduces.
    pub const fn reduces(self) -> bool {
        !matches!(self, Self::AllGather)
    }

    /// Whether a grid has the operation. A world of one rank has all: each is a copy.
    pub(super) fn is_on(self, sizes: &GridSizes) -> bool {
        let (tensor, data) = (sizes.tensor() > 1, sizes.data() > 1);
        match self {
            _ if !tensor && !data => true,
            Self::AllReduce => tensor && !data,
            Self::AllGather | Self::ReduceScatter => !tensor && data,
            Self::AllReduceAllGather | Self::ReduceScatterAllReduce => tensor && data,
        }
    }

    /// Elements of the input and of the output, if all data ranks have equal counts.
    pub(super) fn elems(self, sizes: &GridSizes, count: usize) -> (usize, usize) {
        match self {
            Self::AllReduce => (count, count),
            Self::AllGather | Self::AllReduceAllGather => (count, sizes.data() * count),
            Self::ReduceScatter | Self::ReduceScatterAllReduce => (sizes.data() * count, count),
        }
    }
}

named!(MixedOperation, "the operation", Self::ALL);

impl MixedMode {
    /// Every mode but `Auto`.
    pub const ALL: [Self; 5] =
        [Self::OneShot, Self::TwoShot, Self::TwoShotAcross, Self::OneCollective, Self::TwoCollectives];

    /// `auto`, `one-shot`, `two-shot`, `two-shot-across`, `one-collective` or `two-collectives`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::OneShot => "one-shot",
            Self::TwoShot => "two-shot",
            Self::TwoShotAcross => "two-shot-across",
            Self::OneCollective => "one-collective",
            Self::TwoCollectives => "two-collectives",
        }
    }

    /// Whether a grid that has the operation has it in this mode.
    pub(super) fn is_on(self, sizes: &GridSizes, operation: MixedOperation) -> bool {
        let moves_only = matches!(operation, MixedOperation::AllGather | MixedOperation::ReduceScatter);
        let both = sizes.tensor() > 1 && sizes.data() > 1;
        match self {
            Self::Auto | Self::OneShot | Self::OneCollective => true,
            Self::TwoShot => !moves_only && sizes.local_tensor > 1,
            Self::TwoShotAcross => !moves_only && sizes.across_tensor > 1,
            Self::TwoCollectives => !moves_only && both,
        }
    }
}

named!(MixedMode, "the mode", [Self::Auto].into_iter().chain(Self::ALL));

/// Refuses an operation or a mode that the grid does not have; the error lists those that it has.
pub(super) fn check(sizes: &GridSizes, operation: MixedOperation, mode: MixedMode) -> Result<()> {
    // A closure, so that a valid call allocates nothing.
    let grid = || format!("a grid of {} tensor x {} data ranks", sizes.tensor(), sizes.data());
    if !operation.is_on(sizes) {
        let has = list(MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(sizes)));
        return Err(Error::unsupported(format!("{operation} on {}", grid()), format!("this grid has {has}")));
    }
    if !mode.is_on(sizes, operation) {
        let has = list(MixedMode::ALL.into_iter().filter(|mode| mode.is_on(sizes, operation)));
        let reason = format!("the operation has {has} there");
        return Err(Error::unsupported(format!("{operation} by {mode} on {}", grid()), reason));
    }
    Ok(())
}

fn list(items: impl Iterator<Item = impl fmt::Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
