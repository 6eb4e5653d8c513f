//! Flags of the commands that measure and verify a collective.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Dtype, MAX_WORLD_SIZE, Reduction};

use harness::failure::CommandFailure;
use harness::names::{self, Mover};
use harness::ranks::{GroupArgs, RankArgs, RanksAs};
use harness::sizes::SizeArgs;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Flags of every collective except all-reduce.
#[derive(clap::Args)]
// Their summaries come from the commands: text here would be overridden by them.
#[command(after_long_help = "\
Starts the ranks itself. Every size is run on fresh random data and every element of every rank's \
result is compared, bit for bit, with an independent reference; then batches of operations are timed. A \
size is that of a rank's larger operand.

A row's time is the median over the batches of the \
slowest rank's time for one operation; bus bandwidth is computed as in nccl-tests.

Known bytes surround \
symmetric and plain operands. They are compared before and after each size is timed.

Exit status: 0, or 1 when an element is \
wrong, a byte next to an operand was overwritten or a rank fails, or 2 for wrong usage.")]
pub(crate) struct Args {
    /// How many ranks, 1 to 16
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    pub(crate) ranks: u64,

    #[command(flatten)]
    pub(crate) run: RankArgs,

    /// How data move; `auto` is the library's choice for each size (`symmetra info --choices` prints it), `copy-engine`
    /// the low-contention form of all-gather and reduce-scatter
    #[arg(long, default_value = "auto", value_parser = names::mover_parser())]
    pub(crate) transport: Mover,

    #[command(flatten)]
    pub(crate) group: GroupArgs,

    /// For broadcast, reduce, gather and scatter: the rank that has the input or gets the output [default: 0]
    #[arg(long)]
    pub(crate) root: Option<usize>,

    /// For shift: the distance from the source rank to the destination rank, modulo the number of ranks; may be
    /// negative [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) by: Option<isize>,

    /// For all-gather and reduce-scatter: work along dimension 0, 1 or 2 of a tensor, of which a rank's part is 4 x 4 x
    /// n
    #[arg(long, value_name = "DIM", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) along: Option<u8>,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// The memory of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum OperandMemory {
    /// Symmetric memory of the library
    Symmetric,
    /// Memory of this rank alone
    Plain,
    /// Symmetric memory of NVSHMEM
    Nvshmem,
}

impl OperandMemory {
    /// The name on the command line and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Symmetric => "symmetric",
            Self::Plain => "plain",
            Self::Nvshmem => "nvshmem",
        }
    }

    /// The name in text output.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Symmetric => "symmetric memory",
            Self::Plain => "plain memory",
            Self::Nvshmem => "memory of NVSHMEM",
        }
    }
}

impl SweepArgs {
    /// Refuses memory that this build or these ranks cannot have.
    pub(crate) fn check_memory(&self, ranks_as: RanksAs) -> Result<(), CommandFailure> {
        match (self.memory(), ranks_as) {
            (OperandMemory::Nvshmem, _) if !cfg!(feature = "nvshmem") => Err(CommandFailure::usage(
                "--memory nvshmem: this build has no NVSHMEM (cargo build --features nvshmem)",
            )),
            (OperandMemory::Nvshmem, RanksAs::Threads) => {
                Err(CommandFailure::usage("--memory nvshmem needs ranks that are processes, not --ranks-as threads"))
            }
            _ => Ok(()),
        }
    }

    /// The memory from the flags.
    pub(crate) fn memory(&self) -> OperandMemory {
        if self.plain { OperandMemory::Plain } else { self.memory }
    }
}

/// Flags of a sweep of sizes.
#[derive(clap::Args)]
#[group(id = "sweep", multiple = true)]
#[command(next_help_heading = "Measuring")]
pub(crate) struct SweepArgs {
    /// Element type [default: f32; for all-reduce with --codec: bf16]
    #[arg(long, value_parser = names::dtype_parser())]
    pub(crate) dtype: Option<Dtype>,

    /// For operations that reduce: the reduction of the values of all ranks
    #[arg(long, default_value = "sum", value_parser = names::reduction_parser())]
    pub(crate) op: Reduction,

    #[command(flatten)]
    pub(crate) sizes: SizeArgs,

    /// Operations timed for each size; more than 10 are timed in 10 equal batches, rounded up [default: by size, 10 to 200 on the CPU, 50 to 1000 on GPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) iterations: Option<u32>,

    /// Warm-up batches before the timed batches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) warmup: u32,

    /// Run the operations from a captured graph
    #[arg(long)]
    pub(crate) graph: bool,

    /// Use one buffer for input and output
    #[arg(long)]
    pub(crate) in_place: bool,

    /// Memory of the buffers; `nvshmem` needs that feature, a library, and ranks that are processes
    #[arg(long, value_enum, default_value_t = OperandMemory::Symmetric)]
    pub(crate) memory: OperandMemory,

    /// Use plain device memory, as `--memory plain` does
    #[arg(long, conflicts_with = "memory")]
    pub(crate) plain: bool,

    /// Seed of the random data [default: a new one every run, printed]
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
