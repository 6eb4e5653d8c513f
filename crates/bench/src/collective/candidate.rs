//! The candidates of a comparison of collectives: a library, its transport, and the memory.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::op::Size;
use symmetra::{
    AllReduceOptions, AnyQueue, Codec, Communicator, Dtype, Element, Error, Operand, Reduction, Ref, Result, Stream,
};

use super::data::CollectiveData;
use super::shape::CollectiveShape;
use harness::buffer::TestBuffer;
use harness::collective::CollectiveCommand;
use harness::comparison::ROOT;
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::work::Work;
use harness::failure::CommandFailure;
use reference::bounds::Bounds;
use reference::data::checksum;
use reference::element::Summand;

/// The means of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnMeans {
    /// Kernels, which sum by this algorithm.
    Kernels(AllReduceOptions),
    /// The copy engines.
    CopyEngine,
}

/// Another candidate of this library, in addition to kernels on symmetric memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum With {
    /// The low-contention form, by the copy engines: all-gather and reduce-scatter
    CopyEngine,
    /// Kernels on plain device memory: pushed for single calls, registered in a graph before the launch
    Plain,
    /// Kernels on memory of NVSHMEM, which needs that feature, a library, and ranks that are processes
    Nvshmem,
    /// The all-reduce in floats of 8 bits
    Fp8,
    /// The all-reduce in integers of 8 bits
    Int8,
    /// The all-reduce in integers of 6 bits
    Int6,
    /// The all-reduce in integers of 4 bits
    Int4,
}

impl With {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CopyEngine => "copy-engine",
            Self::Plain => "plain",
            Self::Nvshmem => "nvshmem",
            coded => coded.codec().name(),
        }
    }

    /// How the values are sent.
    pub(super) const fn codec(self) -> Codec {
        match self {
            Self::CopyEngine | Self::Plain | Self::Nvshmem => Codec::None,
            Self::Fp8 => Codec::Fp8,
            Self::Int8 => Codec::Int8,
            Self::Int6 => Codec::Int6,
            Self::Int4 => Codec::Int4,
        }
    }
}

/// Refuses a candidate that a collective does not support, or that does not support a type.
pub(super) fn check(
    with: With,
    collective: CollectiveCommand,
    dtype: Dtype,
) -> std::result::Result<(), CommandFailure> {
    let refuse = |why: String| Err(CommandFailure::usage(format!("--with {}: {why}", with.name())));
    let has = match with {
        With::Plain | With::Nvshmem => true,
        With::CopyEngine => matches!(collective, CollectiveCommand::AllGather | CollectiveCommand::ReduceScatter),
        _ => collective == CollectiveCommand::AllReduce,
    };
    match has {
        true if with == With::Nvshmem && cfg!(not(feature = "nvshmem")) => {
            refuse("this build has no NVSHMEM (cargo build --features nvshmem)".to_owned())
        }
        false => refuse(format!("{} has no such form", collective.name())),
        true if !with.codec().carries(dtype, Reduction::Sum) => {
            refuse(format!("codecs carry sums of f16 and bf16, not of {dtype}"))
        }
        true => Ok(()),
    }
}

/// A collective of this library on these operands.
pub(crate) fn ours<'a, T: Element, B>(
    communicator: &'a Communicator,
    collective: CollectiveCommand,
    how: OwnMeans,
    [input, output]: [&'a B; 2],
) -> Work<'a>
where
    &'a B: Operand<'a, T>,
{
    Box::new(move |queue| match (collective, how) {
        (collective, OwnMeans::Kernels(options)) => {
            let op = collective.op();
            let how = symmetra::How { options, parameter: ROOT, ..symmetra::How::default() };
            let input = (op.input.size != Size::None).then_some(input);
            communicator.perform(op, &how, [input, Some(output)], queue)
        }
        // The pending collective is awaited when it is dropped.
        (CollectiveCommand::AllGather, OwnMeans::CopyEngine) => {
            communicator.low_contention_all_gather(input, output, queue).map(drop)
        }
        (CollectiveCommand::ReduceScatter, OwnMeans::CopyEngine) => {
            communicator.low_contention_reduce_scatter(input, output, Reduction::Sum, queue).map(drop)
        }
        (collective, how) => {
            let what = format!("a race of {} by {how:?}", collective.name());
            Err(Error::Unsupported { what, reason: "it has no such form".to_owned() })
        }
    })
}

/// An input and an output.
pub(super) trait CollectiveOperands<T> {
    /// Blocks until both are written.
    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> Result<()>;
    /// Copies the output out. Blocks.
    fn read(&self, stream: &Stream) -> Result<Vec<T>>;
}

impl<T: Element, B: TestBuffer<T>> CollectiveOperands<T> for [&B; 2] {
    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> Result<()> {
        self[0].write(input, stream)?;
        self[1].write(output, stream)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        self[1].read(stream)
    }
}

impl<T: Element> CollectiveOperands<T> for [Ref<'_, T>; 2] {
    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> Result<()> {
        self[0].write(input, stream)?;
        self[1].write(output, stream)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        self[1].read(stream)
    }
}

/// How far a result may be from the reference.
pub(super) enum Judged {
    /// Equal in every bit: sums are rounded once, in rank order.
    Exact,
    /// A rounding after each addition.
    Rounded,
    /// The error bounds of a codec.
    Codec(Bounds),
}

/// The data of one size on one rank.
pub(super) struct Checked<'a, T> {
    pub(super) data: &'a CollectiveData<T>,
    pub(super) shape: CollectiveShape,
    pub(super) rank: usize,
}

impl<T> Clone for Checked<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Checked<'_, T> {}

/// A library on operands of its own.
pub(super) struct Contestant<'a, T> {
    pub(super) name: &'static str,
    pub(super) work: Work<'a>,
    pub(super) operands: Box<dyn CollectiveOperands<T> + 'a>,
    pub(super) judged: Judged,
    pub(super) checked: Checked<'a, T>,
}

impl<'a, T: Summand> Candidate<'a> for Contestant<'a, T> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 'a>) -> Result<()> {
        (0..operations).try_for_each(|_| (self.work)(queue))
    }

    fn prepare(&self, stream: &Stream) -> Result<()> {
        let Checked { data, shape, rank } = self.checked;
        let output =
            if shape.gives_output(rank) { data.of(rank) } else { CollectiveData::poison(shape.output_elems()) };
        self.operands.write(&data.of(rank), &output, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> Result<CandidateVerdict> {
        let Checked { data, shape, rank } = self.checked;
        let (result, stretches) = (self.operands.read(stream)?, shape.stretches(rank));
        let wrong = match &self.judged {
            Judged::Exact => data.count_unequal(&result, &stretches),
            Judged::Rounded => data.count_far(&result, &stretches),
            Judged::Codec(bounds) => data.count_beyond(bounds, &result, [rank, shape.ranks]),
        };
        Ok(CandidateVerdict { wrong, checksum: checksum(&result) })
    }
}
