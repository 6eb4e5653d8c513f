//! `symmetra all-gather` and its neighbours: every collective but all-reduce, measured and verified.

use symmetra::MAX_WORLD_SIZE;

use crate::all_reduce::{Collective, RanksAs, SweepArgs, measure_exchange};
use crate::devices::Choice;
use crate::failure::Failure;
use crate::names::{self, Mover};

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Flags of every collective but all-reduce.
#[derive(clap::Args)]
// Their summaries are those of the commands: text here would be overridden by them.
#[command(after_long_help = "\
Starts the ranks itself. Every size is run on fresh random data and every element of every rank's \
result is compared, bit for bit, with what it must be; then batches of operations are timed. A \
size is that of a rank's larger operand. A row's time is the median over the batches of the \
slowest rank's time for one operation; bus bandwidth is what nccl-tests call so. Exit status: 0, \
or 1 when an element is wrong or a rank fails, or 2 for wrong usage.")]
pub(crate) struct Args {
    /// How many ranks, 1 to 16
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MAX))]
    pub(crate) ranks: u64,

    /// What the ranks work on
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) device: Choice,

    /// Put several ranks on one GPU when there are too few; `--device auto` then takes GPUs where there is one
    #[arg(long)]
    pub(crate) share_devices: bool,

    /// What the ranks are
    #[arg(long, value_enum, default_value_t = RanksAs::Processes)]
    pub(crate) ranks_as: RanksAs,

    /// How data move; `auto` is the library's choice for each size (`symmetra info` prints it), `copy-engine`
    /// the low-contention form of all-gather and reduce-scatter
    #[arg(long, default_value = "auto", value_parser = names::mover_parser())]
    pub(crate) transport: Mover,

    /// Compare every call across ranks before it runs
    #[arg(long)]
    pub(crate) check_calls: bool,

    /// The rank that gives or gets, where there is one [default: 0]
    #[arg(long)]
    pub(crate) root: Option<usize>,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

/// Runs the command of a collective.
pub(crate) fn run(collective: Collective, args: &Args) -> Result<(), Failure> {
    measure_exchange(collective, args)
}
