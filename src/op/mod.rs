//! Operations: one description each. A description gives the operands, the in-place forms, the bytes from rank to rank,
//! how backends run the call, and the effect. The check of a call, the history that ranks compare, the choice of a
//! backend, the command that measures and verifies the operation, and the tests are derived from it.

mod algorithm;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod broadcast;
mod call;
mod check;
mod codec;
mod cut;
mod effect;
mod form;
mod gather;
mod held;
mod message;
mod norm;
mod norm_rows;
mod options;
mod pairs;
mod part_counts;
mod quantise;
mod reduce;
mod reduce_scatter;
mod scatter;
mod send_receive;
mod shift;
mod strips;

use crate::error::Operation;
use crate::types::{Dtype, Reduction};

pub use algorithm::Algorithm;
pub use all_gather::{ALL_GATHER, ALL_GATHER_V};
pub use all_reduce::ALL_REDUCE;
pub use all_to_all::{ALL_TO_ALL, ALL_TO_ALL_V};
pub use broadcast::BROADCAST;
pub(crate) use call::{Apart, Call, Numbers};
pub(crate) use check::{CheckedShape, NamedSpan, check_apart, span};
pub use codec::Codec;
pub(crate) use cut::Cut;
pub use effect::{Case, Source, Stretch};
pub use gather::GATHER;
pub(crate) use held::Held;
pub use message::Messages;
pub(crate) use message::RankMessage;
pub use norm::{ALL_REDUCE_NORM, REDUCE_SCATTER_NORM, REDUCE_SCATTER_NORM_ALL_GATHER, RowNorm};
pub(crate) use norm::{LocalRows, NormStep, NormSteps, check_lengths};
pub(crate) use norm_rows::NormRows;
pub use norm_rows::{LayerNorm, Norm, RmsNorm};
pub use options::AllReduceOptions;
pub use pairs::Pairs;
pub(crate) use pairs::{check_pairs, each_part, own_messages};
pub(crate) use part_counts::PartCounts;
pub use quantise::{Narrow, Quantisation, ScaleLayout};
pub(crate) use quantise::{Quantised, RowFormat, ScaleGroup};
pub use reduce::REDUCE;
pub use reduce_scatter::{REDUCE_SCATTER, REDUCE_SCATTER_V};
pub use scatter::SCATTER;
pub use send_receive::SEND_RECEIVE;
pub use shift::SHIFT;
pub(crate) use strips::{Rows, Strip, Strips};

/// Every operation of a group that has an input and an output at most, in the order of commands and explanations.
pub static OPERATIONS: [&Op; 13] = [
    &ALL_REDUCE,
    &REDUCE_SCATTER,
    &REDUCE_SCATTER_V,
    &ALL_GATHER,
    &ALL_GATHER_V,
    &ALL_TO_ALL,
    &ALL_TO_ALL_V,
    &BROADCAST,
    &REDUCE,
    &GATHER,
    &SCATTER,
    &SEND_RECEIVE,
    &SHIFT,
];

/// The operations of a group that work on rows, and have more operands.
pub static ROW_OPERATIONS: [&Op; 3] = [&ALL_REDUCE_NORM, &REDUCE_SCATTER_NORM, &REDUCE_SCATTER_NORM_ALL_GATHER];

/// The description of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Op {
    /// Name, number, and parameters other than operands.
    pub operation: Operation,
    /// The effect, in one line.
    pub summary: &'static str,
    /// The operand that a call reads.
    pub input: Extent,
    /// The operand that a call writes.
    pub output: Extent,
    /// Where input and output may be the same memory.
    pub in_place: InPlace,
    /// Whether the operation has a form along one dimension of a row-major tensor.
    pub along: bool,
    /// Whether the operation has a low-contention form, which copy engines run.
    pub low_contention: bool,
    /// Bus bandwidth over algorithm bandwidth for a world size, as nccl-tests define it.
    pub bus_factor: fn(usize) -> f64,
    /// The contents of a rank's output after a call. Stated independently: nothing that runs a call uses it.
    pub effect: fn(&Case<'_>, usize) -> Vec<Stretch>,
    pub(crate) kernels: Kernels,
    #[cfg_attr(not(feature = "nccl"), expect(dead_code, reason = "the build has no such backend"))]
    pub(crate) nccl: NcclForm,
    pub(crate) host: Host,
}

/// The size of an operand. Ranks agree on an element count, except where each pair of ranks has its own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Size {
    /// No operand.
    None,
    /// The count.
    One,
    /// The count for each rank: world size times the count, parts in rank order.
    PerRank,
    /// A separate count for each rank, with parts in rank order. The sum of the counts is at most the operand's length.
    Counts,
    /// This rank's part, where each rank has a count that all ranks know.
    OwnPart,
    /// The parts of all ranks, in rank order, where each rank has a count that all ranks know.
    Parts,
    /// Any number of messages, at most one for each rank and direction.
    Messages,
    /// All rows of a call.
    Rows,
    /// This rank's share of the rows of a call: the rows of the input over the world size.
    OwnRows,
}

impl Size {
    /// Whether each rank or each pair of ranks has its own count, which a call passes.
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Counts | Self::OwnPart | Self::Parts | Self::Messages)
    }
}

/// An operand: its size, and whether the root alone has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many elements.
    pub size: Size,
    /// Whether only the root has the operand. Operands passed by other ranks are ignored.
    pub at_root: bool,
}

impl Extent {
    const NONE: Self = Self::of(Size::None);
    const ONE: Self = Self::of(Size::One);
    const PER_RANK: Self = Self::of(Size::PerRank);
    const COUNTS: Self = Self::of(Size::Counts);
    const OWN_PART: Self = Self::of(Size::OwnPart);
    const PARTS: Self = Self::of(Size::Parts);
    const MESSAGES: Self = Self::of(Size::Messages);
    const ROWS: Self = Self::of(Size::Rows);
    const OWN_ROWS: Self = Self::of(Size::OwnRows);

    const fn of(size: Size) -> Self {
        Self { size, at_root: false }
    }

    const fn at_root(self) -> Self {
        Self { at_root: true, ..self }
    }
}

/// How input and output of a call may share memory. Otherwise they must not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InPlace {
    /// Input and output never share memory.
    Never,
    /// Input and output are the same.
    Same,
    /// The smaller operand is this rank's part of the larger one.
    OwnPart,
}

/// How symmetra kernels run an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernels {
    /// By an all-reduce algorithm.
    AllReduce,
    /// By an exchange of chunks.
    Exchange { strips: fn(&Call<'_>, &CheckedShape) -> Strips, access: Access },
}

/// The operand that peers access in an exchange if they can address the operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Each rank writes into the output of every other, at the offset of its chunk from itself in its own output.
    Write,
    /// Each receiving rank reads the input of every rank, from the offset of its chunk to itself in its own input, and
    /// reduces the values.
    Reduce,
    /// Each rank reads a share of the root's output and writes the share into the output of all others.
    Relay,
    /// Only receivers know the addresses of their chunks. They send these addresses on the device before the exchange.
    Told(Tell),
}

/// When ranks send each other the addresses of their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Only if the message is large enough for direct access to pay off. All ranks know the size.
    Large,
    /// Always, because each rank knows only its own sizes.
    Always,
}

/// How NCCL runs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NcclForm {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    /// A group of sends and receives, one for each chunk.
    Strips,
    /// A group of reduces, one for each rank's chunk.
    ReducedStrips,
}

/// How the host backend runs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// An exchange of the chunks.
    Strips,
    /// An exchange of the chunks, in which each rank reduces the received chunks.
    ReducedStrips,
    /// Every rank reduces a share, all ranks gather the shares, and ranks that have an output write the result.
    Reduced,
    /// The root scatters shares, and all ranks gather them.
    Broadcast,
}

impl Op {
    /// The name of the command, and of the operation in messages.
    pub const fn name(&self) -> &'static str {
        self.operation.name()
    }

    /// Every operation of a group: [`OPERATIONS`] and [`ROW_OPERATIONS`].
    pub fn all() -> impl Iterator<Item = &'static Self> {
        OPERATIONS.into_iter().chain(ROW_OPERATIONS)
    }

    /// The operation with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|op| op.name() == name)
    }

    /// The description of an operation; `None` for a number that no operation of a group has.
    pub fn of(operation: Operation) -> Option<&'static Self> {
        Self::all().find(|op| op.operation == operation)
    }

    /// The element types that the operation supports.
    pub const fn dtypes(&self) -> &'static [Dtype] {
        match self.input.size {
            Size::Rows => &[Dtype::F32, Dtype::F16, Dtype::BF16],
            _ => &Dtype::ALL,
        }
    }

    /// The reductions that the operation supports; none if the operation does not reduce.
    pub const fn reductions(&self) -> &'static [Reduction] {
        match self.input.size {
            Size::Rows => &[Reduction::Sum],
            _ if self.operation.reduces() => &Reduction::ALL,
            _ => &[],
        }
    }

    /// Whether ranks send each other the addresses of their outputs on the device. Direct access then needs outputs in
    /// symmetric memory.
    pub const fn tells_places(&self) -> bool {
        matches!(self.kernels, Kernels::Exchange { access: Access::Told(_), .. })
    }

    /// Whether every rank knows the number of bytes between any two ranks.
    pub(crate) const fn knows_sizes(&self) -> bool {
        !matches!(self.kernels, Kernels::Exchange { access: Access::Told(Tell::Always), .. })
    }

    /// Whether each rank reduces only its share of the rows. Its residual then has only these rows.
    pub(crate) fn scatters_rows(&self) -> bool {
        self.input.size == Size::Rows && matches!(self.kernels, Kernels::Exchange { .. })
    }

    /// Whether every rank has an output of all rows.
    pub(crate) fn outputs_all_rows(&self) -> bool {
        self.output.size == Size::Rows
    }

    /// Whether the operation scatters rows and then gathers them into an output of all rows.
    pub(crate) fn gathers_rows(&self) -> bool {
        self.scatters_rows() && self.outputs_all_rows()
    }

    /// The chunks that go from rank to rank. Empty for an all-reduce, whose algorithm decides.
    pub(crate) fn strips(&self, call: &Call<'_>, shape: &CheckedShape) -> Strips {
        match self.kernels {
            Kernels::AllReduce => Strips::empty(shape.world),
            Kernels::Exchange { strips, .. } => strips(call, shape),
        }
    }
}

impl Eq for Op {}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

/// The fraction of a message that crosses a rank's link if each rank keeps its own part.
fn share_of_others(world_size: usize) -> f64 {
    (world_size as f64 - 1.0) / world_size as f64
}

fn all_of_it(_world_size: usize) -> f64 {
    1.0
}
