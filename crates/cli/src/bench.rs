//! `symmetra bench`: the library beside other libraries, what the hardware gives, what a call costs.

mod all_reduce;
mod course;
mod data;
mod entry;
mod exchange;
mod floor;
pub(crate) mod measured;
#[cfg(feature = "nccl")]
mod nccl;
mod overhead;
mod overlap;
mod peer;
mod plot;
mod race;
mod report;
mod side;
pub(crate) mod stopwatch;

use std::path::PathBuf;

use clap::{ArgAction, Subcommand};
use serde::{Deserialize, Serialize};
use symmetra::{Communicator, MAX_WORLD_SIZE};

use crate::all_reduce::{Collective, RanksAs};
use crate::devices::{self, Choice, RankDevice};
use crate::failure::Failure;
use crate::tune::lap;

const MAX: u64 = MAX_WORLD_SIZE as u64;

/// Measure: the library beside others, the floor of the hardware, the cost of a call.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    AllReduce(all_reduce::Args),
    /// All-gather beside other libraries
    AllGather(exchange::Args),
    /// Reduce-scatter (sum) beside other libraries
    ReduceScatter(exchange::Args),
    /// All-to-all beside other libraries
    AllToAll(exchange::Args),
    /// Broadcast beside other libraries
    Broadcast(exchange::Args),
    Floor(floor::Args),
    Overhead(overhead::Args),
    Overlap(overlap::Args),
}

/// Which ranks measure.
#[derive(clap::Args)]
struct RankArgs {
    /// How many ranks
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=MAX))]
    ranks: u64,

    /// What the ranks work on
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    device: Choice,

    /// Put several ranks on one GPU when there are too few; `--device auto` then takes GPUs where there is one
    #[arg(long)]
    share_devices: bool,

    /// What the ranks are
    #[arg(long, value_enum, default_value_t = RanksAs::Processes)]
    ranks_as: RanksAs,
}

impl RankArgs {
    fn devices(&self) -> Result<Vec<RankDevice>, Failure> {
        devices::assign(self.device, self.ranks as usize, self.share_devices)
    }
}

/// Where the numbers go besides the table.
#[derive(clap::Args)]
struct OutputArgs {
    /// Write the numbers as one JSON object into this file; `-`: to standard output, in place of the table
    #[arg(long, value_name = "PATH", action = ArgAction::Set)]
    json: Option<PathBuf>,
}

impl OutputArgs {
    /// To be called before the work.
    fn check(&self) -> Result<(), Failure> {
        match &self.json {
            Some(path) if path.as_os_str() != "-" => crate::target::check_written("--json", path),
            _ => Ok(()),
        }
    }

    /// Prints the table, and writes the object where it was asked for.
    fn write(&self, table: impl std::fmt::Display, object: &impl Serialize) -> Result<(), Failure> {
        let Some(path) = &self.json else { return crate::output::line(table) };
        if path.as_os_str() == "-" {
            return crate::output::json(object);
        }
        let text = serde_json::to_string_pretty(object).map_err(Failure::doing("write JSON"))?;
        crate::output::line(table)?;
        std::fs::write(path, text + "\n").map_err(Failure::doing(format!("write {}", path.display())))
    }
}

/// What every rank is told to measure, by `bench` or `tune`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Race(race::Race),
    Floor(floor::Plan),
    Overhead(overhead::Plan),
    Tune(lap::Plan),
    Overlap(overlap::Plan),
}

/// What a rank found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    Lap(race::Lap),
    Floor(floor::Floor),
    Overhead(overhead::Cost),
    Tuned(lap::Lap),
    Overlap(overlap::Times),
}

/// Where a rank says it.
pub(crate) type Say<'a> = &'a mut dyn FnMut(Found) -> Result<(), Failure>;

impl Task {
    /// One rank's part.
    pub(crate) fn run(&self, communicator: &Communicator, say: Say<'_>) -> Result<(), Failure> {
        match self {
            Self::Race(race) => race.run(communicator, say),
            Self::Floor(plan) => plan.run(communicator, say),
            Self::Overhead(plan) => plan.run(communicator, say),
            Self::Tune(plan) => plan.run(communicator, say),
            Self::Overlap(plan) => plan.run(communicator, say),
        }
    }

    /// Symmetric memory that a rank needs.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            Self::Race(race) => race.heap_bytes(),
            Self::Floor(plan) => plan.heap_bytes(),
            Self::Overhead(plan) => plan.heap_bytes(),
            Self::Tune(plan) => plan.heap_bytes(),
            Self::Overlap(plan) => plan.heap_bytes(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::AllReduce(args) => all_reduce::run(args),
        What::AllGather(args) => exchange::run(Collective::AllGather, args),
        What::ReduceScatter(args) => exchange::run(Collective::ReduceScatter, args),
        What::AllToAll(args) => exchange::run(Collective::AllToAll, args),
        What::Broadcast(args) => exchange::run(Collective::Broadcast, args),
        What::Floor(args) => floor::run(args),
        What::Overhead(args) => overhead::run(args),
        What::Overlap(args) => overlap::run(args),
    }
}
