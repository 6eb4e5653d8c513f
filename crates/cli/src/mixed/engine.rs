//! The collectives of an engine without meshes: one of another library over the tensor group, and one over the data
//! group.

use std::ops::Range;

use symmetra::mixed::MixedOperation;
use symmetra::{Communicator, Element, Ref, SymmetricBuffer};

use super::oracle::OraclePosition;
use harness::buffer::TestBuffer;
use harness::collective::CollectiveCommand;
use harness::comparison::nccl::Nccl;
use harness::comparison::work::Work;
use harness::failure::CommandFailure;
use harness::guarded::Guarded;

/// Ranks of one level of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The ranks of the same data rank.
    Tensor,
    /// The ranks of the same tensor rank.
    Data,
}

/// Elements of one of a rank's operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperandStretch {
    Input(Range<usize>),
    Output(Range<usize>),
}

/// A collective over a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedGrid {
    pub(super) collective: CollectiveCommand,
    pub(super) level: Level,
    pub(super) operands: [OperandStretch; 2],
}

/// The collectives of an operation on a rank of this data rank. A slice and `x` have `count` elements. A mesh whose
/// level has one rank has no operation with a collective of that level.
pub(super) fn plan(
    operation: MixedOperation,
    (data_rank, data_ranks): (usize, usize),
    count: usize,
) -> Result<Vec<PlannedGrid>, CommandFailure> {
    let [one, all] = [0..count, 0..data_ranks * count];
    let own = data_rank * count..(data_rank + 1) * count;
    let step = |collective, level, from, into| PlannedGrid { collective, level, operands: [from, into] };
    Ok(match operation {
        MixedOperation::AllReduce => {
            vec![step(
                CollectiveCommand::AllReduce,
                Level::Tensor,
                OperandStretch::Input(one.clone()),
                OperandStretch::Output(one),
            )]
        }
        MixedOperation::AllGather => {
            vec![step(
                CollectiveCommand::AllGather,
                Level::Data,
                OperandStretch::Input(one),
                OperandStretch::Output(all),
            )]
        }
        MixedOperation::ReduceScatter => {
            vec![step(
                CollectiveCommand::ReduceScatter,
                Level::Data,
                OperandStretch::Input(all),
                OperandStretch::Output(one),
            )]
        }
        // Into the place of the slice in the output, so that the second collective needs no copy.
        MixedOperation::AllReduceAllGather => vec![
            step(
                CollectiveCommand::AllReduce,
                Level::Tensor,
                OperandStretch::Input(one),
                OperandStretch::Output(own.clone()),
            ),
            step(CollectiveCommand::AllGather, Level::Data, OperandStretch::Output(own), OperandStretch::Output(all)),
        ],
        MixedOperation::ReduceScatterAllReduce => vec![
            step(
                CollectiveCommand::ReduceScatter,
                Level::Data,
                OperandStretch::Input(all),
                OperandStretch::Output(one.clone()),
            ),
            step(
                CollectiveCommand::AllReduce,
                Level::Tensor,
                OperandStretch::Output(one.clone()),
                OperandStretch::Output(one),
            ),
        ],
        other => return Err(CommandFailure::failed(format!("no collectives of an engine are known for {other}"))),
    })
}

/// The collectives in words.
pub(super) fn words(planned: &[PlannedGrid]) -> String {
    let word = |planned: &PlannedGrid| {
        let group = match planned.level {
            Level::Tensor => "tensor",
            Level::Data => "data",
        };
        format!("{} ({group})", planned.collective.name())
    };
    planned.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Operands whose device memory another library can work on.
pub(super) trait GridMemory<T: Element>: TestBuffer<T> {
    /// All elements.
    fn memory(&self) -> symmetra::Result<Ref<'_, T>>;
}

impl<T: Element> GridMemory<T> for SymmetricBuffer<T> {
    fn memory(&self) -> symmetra::Result<Ref<'_, T>> {
        Ok(self.borrow())
    }
}

impl<T: Element> GridMemory<T> for Guarded<T> {
    fn memory(&self) -> symmetra::Result<Ref<'_, T>> {
        self.elements()
    }
}

/// A rank of NCCL on each level of a mesh that has several ranks.
pub(super) struct Engine {
    tensor: Option<Nccl>,
    data: Option<Nccl>,
}

impl Engine {
    /// `places` has the place of every rank of `communicator`. Collective; blocks.
    pub(super) fn open(communicator: &Communicator, places: &[OraclePosition]) -> Result<Self, CommandFailure> {
        let own = places[communicator.rank()];
        let open = |is_member: &dyn Fn(&OraclePosition) -> bool| {
            let members: Vec<usize> = (0..places.len()).filter(|rank| is_member(&places[*rank])).collect();
            (members.len() > 1).then(|| Nccl::open(communicator, &members)).transpose()
        };
        Ok(Self {
            tensor: open(&|place| place.data_rank == own.data_rank)?,
            data: open(&|place| place.tensor_rank == own.tensor_rank)?,
        })
    }

    /// Fails if NCCL has failed on any level.
    pub(super) fn check(&self) -> symmetra::Result<()> {
        [&self.tensor, &self.data].into_iter().flatten().try_for_each(Nccl::check)
    }

    /// The planned collectives on these operands.
    pub(super) fn steps<'s, T: Element, B: GridMemory<T>>(
        &'s self,
        planned: Vec<PlannedGrid>,
        [input, output]: [&'s B; 2],
    ) -> Result<Vec<Work<'s>>, CommandFailure> {
        let memory = |stretch| match stretch {
            OperandStretch::Input(range) => input.memory()?.slice(range),
            OperandStretch::Output(range) => output.memory()?.slice(range),
        };
        let step = |PlannedGrid { collective, level, operands: [from, into] }| -> Result<Work<'s>, CommandFailure> {
            let nccl = match level {
                Level::Tensor => &self.tensor,
                Level::Data => &self.data,
            };
            let nccl = nccl.as_ref().ok_or_else(|| CommandFailure::failed("a collective over a level of one rank"))?;
            Ok(nccl.on(collective, [memory(from)?, memory(into)?]))
        };
        planned.into_iter().map(step).collect()
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/mixed_engine.rs"]
mod tests;
