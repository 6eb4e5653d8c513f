//! `symmetra bench all-gather` and its neighbours: this library and others on the same data, in turn.

use symmetra::Algorithm;

use super::entry::{Entry, RaceArgs};
use crate::all_reduce::Collective;
use crate::failure::Failure;

/// Flags of every race but that of all-reduce.
#[derive(clap::Args)]
// Their summaries are those of the commands: text here would be overridden by them.
#[command(after_long_help = "\
As `symmetra bench all-reduce`: every element is verified, those of our sides to the bit, then \
the sides take turns. A size is that of a rank's input: an all-gather's output is world size times \
as large, and so are the bytes that its bus bandwidth counts. Sums are what is reduced; NCCL's \
all-to-all is a group of sends and receives. Exit status: 0, or 1 when an element is wrong or a \
rank fails, or 2 for wrong usage.")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,
}

/// Runs the command of a collective.
pub(super) fn run(collective: Collective, args: &Args) -> Result<(), Failure> {
    Entry { collective, algorithm: Algorithm::Auto }.run(&args.race)
}
