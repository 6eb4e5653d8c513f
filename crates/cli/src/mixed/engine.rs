//! The collectives of an engine without meshes: one of another library over the tensor group, and one over the data
//! group.

use std::ops::Range;

use symmetra::mixed::MixedOperation;
use symmetra::{Communicator, Element, Ref, SymmetricBuffer};

use super::oracle::Place;
use harness::buffer::Buffer;
use harness::collective::Collective;
use harness::comparison::nccl::Nccl;
use harness::comparison::work::Work;
use harness::failure::Failure;
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
pub(super) enum Stretch {
    Input(Range<usize>),
    Output(Range<usize>),
}

/// A collective over a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) collective: Collective,
    pub(super) level: Level,
    pub(super) operands: [Stretch; 2],
}

/// The collectives of an operation on a rank of this data rank. A slice and `x` have `count` elements. A mesh whose
/// level has one rank has no operation with a collective of that level.
pub(super) fn plan(
    operation: MixedOperation,
    (data_rank, data_ranks): (usize, usize),
    count: usize,
) -> Result<Vec<Planned>, Failure> {
    let [one, all] = [0..count, 0..data_ranks * count];
    let own = data_rank * count..(data_rank + 1) * count;
    let step = |collective, level, from, into| Planned { collective, level, operands: [from, into] };
    Ok(match operation {
        MixedOperation::AllReduce => {
            vec![step(Collective::AllReduce, Level::Tensor, Stretch::Input(one.clone()), Stretch::Output(one))]
        }
        MixedOperation::AllGather => {
            vec![step(Collective::AllGather, Level::Data, Stretch::Input(one), Stretch::Output(all))]
        }
        MixedOperation::ReduceScatter => {
            vec![step(Collective::ReduceScatter, Level::Data, Stretch::Input(all), Stretch::Output(one))]
        }
        // Into the place of the slice in the output, so that the second collective needs no copy.
        MixedOperation::AllReduceAllGather => vec![
            step(Collective::AllReduce, Level::Tensor, Stretch::Input(one), Stretch::Output(own.clone())),
            step(Collective::AllGather, Level::Data, Stretch::Output(own), Stretch::Output(all)),
        ],
        MixedOperation::ReduceScatterAllReduce => vec![
            step(Collective::ReduceScatter, Level::Data, Stretch::Input(all), Stretch::Output(one.clone())),
            step(Collective::AllReduce, Level::Tensor, Stretch::Output(one.clone()), Stretch::Output(one)),
        ],
        other => return Err(Failure::failed(format!("no collectives of an engine are known for {other}"))),
    })
}

/// The collectives in words.
pub(super) fn words(planned: &[Planned]) -> String {
    let word = |planned: &Planned| {
        let group = match planned.level {
            Level::Tensor => "tensor",
            Level::Data => "data",
        };
        format!("{} ({group})", planned.collective.name())
    };
    planned.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Operands whose device memory another library can work on.
pub(super) trait Memory<T: Element>: Buffer<T> {
    /// All elements.
    fn memory(&self) -> symmetra::Result<Ref<'_, T>>;
}

impl<T: Element> Memory<T> for SymmetricBuffer<T> {
    fn memory(&self) -> symmetra::Result<Ref<'_, T>> {
        Ok(self.borrow())
    }
}

impl<T: Element> Memory<T> for Guarded<T> {
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
    pub(super) fn open(communicator: &Communicator, places: &[Place]) -> Result<Self, Failure> {
        let own = places[communicator.rank()];
        let open = |is_member: &dyn Fn(&Place) -> bool| {
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
    pub(super) fn steps<'s, T: Element, B: Memory<T>>(
        &'s self,
        planned: Vec<Planned>,
        [input, output]: [&'s B; 2],
    ) -> Result<Vec<Work<'s>>, Failure> {
        let memory = |stretch| match stretch {
            Stretch::Input(range) => input.memory()?.slice(range),
            Stretch::Output(range) => output.memory()?.slice(range),
        };
        let step = |Planned { collective, level, operands: [from, into] }| -> Result<Work<'s>, Failure> {
            let nccl = match level {
                Level::Tensor => &self.tensor,
                Level::Data => &self.data,
            };
            let nccl = nccl.as_ref().ok_or_else(|| Failure::failed("a collective over a level of one rank"))?;
            Ok(nccl.on(collective, [memory(from)?, memory(into)?]))
        };
        planned.into_iter().map(step).collect()
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/mixed_engine.rs"]
mod tests;
