//! The candidates of a comparison: a library, its transport, and the memory.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::op::Size;
use symmetra::{AllReduceOptions, Capture, Codec, Communicator, Dtype, Element, Operand, Queue, Reduction, Stream};

use harness::buffer::Buffer;
use harness::collective::Collective;
use harness::contest::ROOT;
use harness::failure::Failure;

/// One library, with an input and an output.
pub(super) trait Side<'a, T> {
    /// Enqueues one operation that runs.
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Enqueues one operation that a graph holds.
    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()>;
    /// Writes input and output. Blocks until both are written.
    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()>;
    /// Copies the output out. Blocks.
    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>>;
    /// Whether its sums are rounded once, in rank order.
    fn is_exact(&self) -> bool;
}

/// The means of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
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
pub(super) fn check(with: With, collective: Collective, dtype: Dtype) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::usage(format!("--with {}: {why}", with.name())));
    let has = match with {
        With::Plain | With::Nvshmem => true,
        With::CopyEngine => matches!(collective, Collective::AllGather | Collective::ReduceScatter),
        _ => collective == Collective::AllReduce,
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

/// This library, on one kind of memory.
pub(super) struct Ours<'a, B> {
    pub(super) communicator: &'a Communicator,
    pub(super) collective: Collective,
    pub(super) how: How,
    /// Whether the operation sums in rank order.
    pub(super) exact: bool,
    pub(super) input: &'a B,
    pub(super) output: &'a B,
}

impl<'a, B> Ours<'a, B> {
    fn call<T: Element>(&self, queue: impl Queue<'a>) -> symmetra::Result<()>
    where
        &'a B: Operand<'a, T>,
    {
        let Self { communicator, input, output, .. } = *self;
        match (self.collective, self.how) {
            (collective, How::Kernels(options)) => {
                let op = collective.op();
                let how = symmetra::How { options, parameter: ROOT, ..symmetra::How::default() };
                let input = (op.input.size != Size::None).then_some(input);
                communicator.perform(op, &how, [input, Some(output)], queue)
            }
            // The pending collective is awaited when it is dropped.
            (Collective::AllGather, How::CopyEngine) => {
                communicator.low_contention_all_gather(input, output, queue).map(drop)
            }
            (Collective::ReduceScatter, How::CopyEngine) => {
                communicator.low_contention_reduce_scatter(input, output, Reduction::Sum, queue).map(drop)
            }
            (collective, how) => {
                let what = format!("a race of {} by {how:?}", collective.name());
                Err(symmetra::Error::Unsupported { what, reason: "it has no such form".to_owned() })
            }
        }
    }
}

impl<'a, T: Element, B: Buffer<T>> Side<'a, T> for Ours<'a, B>
where
    &'a B: Operand<'a, T>,
{
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call(capture)
    }

    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()> {
        self.input.write(input, stream)?;
        self.output.write(output, stream)
    }

    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        self.output.read(stream)
    }

    fn is_exact(&self) -> bool {
        self.exact
    }
}
