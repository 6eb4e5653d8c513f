//! `symmetra bench all-reduce`: this library and others on the same data, in turn.

use symmetra::Algorithm;

use super::entry::{Entry, RaceArgs};
use super::side::With;
use crate::all_reduce::Collective;
use crate::failure::Failure;
use crate::names;

/// All-reduce (sum) beside other libraries: time, ratio to the best of them, bus bandwidth.
///
/// All sides run in the same processes. Every size is run on fresh random data and every element
/// is compared with an independent sum: ours to the bit, the others', which may round after each
/// addition, within that. Then the sides take turns: the ranks meet on their devices, launch the
/// operations and are timed to the end of the last. A time is the median over the launches of the
/// slowest rank's time for one operation. A graph is launched while the ranks still meet on their devices; calls
/// (`--eager`) are timed from where they have met, so that their time has in it what the hosts take. All ranks must
/// end with the same bits on our sides. `--with plain` adds what plain device memory costs, the memory of a
/// program that allocates by other means: called one by one its contents are pushed; in a graph its addresses are
/// exchanged once, before the first launch (`Graph::register`), and peers use it where it is, like symmetric
/// memory. NVLink multicast stays off (NCCL_NVLS_ENABLE=0, unless
/// it is set). Exit status: 0, or 1 when an element is wrong, ranks differ or one fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra bench all-reduce --ranks 2 --max-bytes 1MiB
  symmetra bench all-reduce --against nccl,nccl-symmetric --ranks 8 --dtype bf16 --max-bytes 1GiB --plot out.svg --json out.json
  symmetra bench all-reduce --ranks 4 --eager --json -
  symmetra bench all-reduce --ranks 4 --with plain --graph --eager --max-bytes 256MiB")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// How we sum; `auto` is the library's choice for each size
    #[arg(long, default_value = "auto", value_parser = names::algorithm_parser())]
    algorithm: Algorithm,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (algorithm, dtype) = (args.algorithm, args.race.dtype);
    if !algorithm.carries(dtype) {
        return Err(Failure::usage(format!("{algorithm} carries floating types only, not {dtype}")));
    }
    if algorithm.needs_reach() && args.race.with.contains(&With::Plain) {
        return Err(Failure::usage(format!("--with plain: {algorithm} needs memory that peers can address")));
    }
    Entry { collective: Collective::AllReduce, algorithm }.run(&args.race)
}
