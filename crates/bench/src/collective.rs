//! `symmetra-bench all-reduce`, `all-gather` and so on: this library and others on the same data, in turn.

pub(crate) mod candidate;
pub(crate) mod data;
mod rank;
mod report;
pub(crate) mod shape;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Codec, Dtype};

use super::driver;
use super::flags::{OperationsArgs, RaceArgs};
use super::limits::LimitTimes;
use super::pace::Pace;
use candidate::With;
use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::names::{self, by_name, distinct};
use harness::sizes::SizeArgs;
use shape::CollectiveShape;

/// Flags of every comparison of collectives.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// Other candidates of this library, separated by commas [default: none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SIDES")]
    with: Vec<With>,

    /// Element type
    #[arg(long, default_value = "bf16", value_parser = names::dtype_parser())]
    dtype: Dtype,

    #[command(flatten)]
    sizes: SizeArgs,

    #[command(flatten)]
    operations: OperationsArgs,

    /// Draw time and bandwidth over size, with the floor of the hardware, into this SVG file
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
}

/// All-reduce (sum) compared with other libraries: time, ratio to the best of them, bus bandwidth.
///
/// All candidates run in the same processes. Every size is run on fresh random data and every element is compared with
/// an independent sum: ours to the bit, the others', which may round after each addition, within that. Then the
/// candidates take turns: the ranks meet on their devices, launch the operations and are timed to the end of the last.
///
/// A time is the median over the launches of the slowest rank's time for one operation. A graph is launched while the
/// ranks still meet on their devices; calls (`--eager`) are timed from where they have met, so that their time includes
/// the time of the hosts. All ranks must end with the same bits for our candidates.
///
/// `--with plain` adds our all-reduce on plain device memory, the memory of a program that allocates by other means:
/// for single calls its contents are pushed; in a graph its addresses are exchanged once, before the first launch
/// (`Graph::register`), and peers access it in place, like symmetric memory. `--with nvshmem` adds kernels on memory of
/// NVSHMEM.
///
/// `--with fp8,int8,int6,int4` adds our all-reduce by these codecs: their elements are compared with the codec's bound,
/// and a column has the time without a codec divided by the time with the codec. NVLink multicast stays off
/// (NCCL_NVLS_ENABLE=0, unless it is set).
///
/// Exit status: 0, or 1 when an element is wrong, ranks differ or one fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench all-reduce --ranks 2 --max-bytes 1MiB
  symmetra-bench all-reduce -b 8 -e 128M -f 4
  symmetra-bench all-reduce --against nccl,nccl-symmetric --ranks 8 --dtype bf16 --max-bytes 1GiB --plot out.svg --output out.json
  symmetra-bench all-reduce --ranks 4 --eager --json
  symmetra-bench all-reduce --ranks 4 --with plain --graph --eager --max-bytes 256MiB
  symmetra-bench all-reduce --ranks 4 --with fp8,int8,int6,int4 --min-bytes 256KiB --max-bytes 256MiB --against nccl")]
pub(super) struct AllReduceRaceArgs {
    #[command(flatten)]
    args: Args,

    /// The algorithm of our all-reduce; `auto` is the library's choice for each size
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,
}

/// Flags of every comparison except that of all-reduce.
#[derive(clap::Args)]
// Their summaries are those of the commands: text here would be overridden by them.
#[command(after_long_help = "\
As `symmetra-bench all-reduce`: every element is verified, those of our sides to the bit, then \
the sides take turns. A size is that of a rank's input: an all-gather's output is world size times \
as large, and so are the bytes that its bus bandwidth counts.

Sums are what is reduced; NCCL's all-to-all is a group of sends and receives.

Exit status: 0, or 1 when an element is wrong or a \
rank fails, or 2 for wrong usage.")]
pub(super) struct ExchangeRaceArgs {
    #[command(flatten)]
    pub(super) args: Args,
}

impl AllReduceRaceArgs {
    /// Runs the command.
    pub(super) fn run(&self) -> Result<(), CommandFailure> {
        let (algorithm, dtype) = (self.algorithm, self.args.dtype);
        if !algorithm.carries(dtype) {
            return Err(CommandFailure::usage(format!("{algorithm} carries floating types only, not {dtype}")));
        }
        if algorithm.needs_reach() && self.args.with.contains(&With::Plain) {
            return Err(CommandFailure::usage(format!(
                "--with plain: {algorithm} needs memory that peers can address"
            )));
        }
        self.args.run(CollectiveCommand::AllReduce, algorithm)
    }
}

impl Args {
    /// Runs the comparison.
    pub(super) fn run(&self, collective: CollectiveCommand, algorithm: Algorithm) -> Result<(), CommandFailure> {
        driver::run(&self.race, self.plot.as_deref(), |kind, pace| {
            // The inputs of some collectives are cut for all ranks.
            let parts = match collective {
                CollectiveCommand::ReduceScatter | CollectiveCommand::AllToAll => pace.ranks,
                _ => 1,
            };
            let check = |with| candidate::check(with, collective, self.dtype);
            Ok(CollectiveRace {
                dtype: self.dtype,
                collective,
                algorithm,
                sizes_elems: self.sizes.elems(self.dtype, parts)?,
                with: distinct("--with", &self.with, With::name, check)?,
                floor_bytes: LimitTimes::bytes(kind),
                pace: Pace { operations: self.operations.operations, ..pace },
            })
        })
    }
}

/// The candidates and the sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CollectiveRace {
    #[serde(with = "by_name")]
    dtype: Dtype,
    collective: CollectiveCommand,
    /// The algorithm of an all-reduce.
    #[serde(with = "by_name")]
    algorithm: Algorithm,
    /// Elements of the input.
    sizes_elems: Vec<usize>,
    /// Other candidates of this library.
    with: Vec<With>,
    /// Message size of the floor.
    floor_bytes: u64,
    pace: Pace,
}

/// The name of this library's first candidate.
const OURS: &str = "symmetra";

impl CollectiveRace {
    /// Bytes of the input.
    fn bytes(&self, elems: usize) -> u64 {
        (elems * self.dtype.bytes()) as u64
    }

    fn shape(&self, elems: usize) -> CollectiveShape {
        CollectiveShape { collective: self.collective, elems, ranks: self.pace.ranks }
    }

    /// Bytes of the larger operand of a size.
    fn larger_bytes(&self, elems: usize) -> u64 {
        self.bytes(self.shape(elems).larger_elems())
    }

    fn largest_bytes(&self) -> u64 {
        self.sizes_elems.iter().map(|elems| self.larger_bytes(*elems)).max().unwrap_or(0)
    }

    fn workspace_bytes(&self) -> u64 {
        if self.with.contains(&With::CopyEngine) { self.largest_bytes() } else { 0 }
    }

    /// Our candidates by name.
    fn own(&self) -> Vec<&'static str> {
        [OURS].into_iter().chain(self.with.iter().map(|with| with.name())).collect()
    }

    /// The candidates that have codecs, by name.
    fn coded(&self) -> Vec<&'static str> {
        self.with.iter().filter(|with| with.codec() != Codec::None).map(|with| with.name()).collect()
    }
}
