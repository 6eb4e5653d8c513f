//! `symmetra bench`: the library beside other libraries, what the hardware gives, what a call costs.

mod data;
#[cfg_attr(not(feature = "nccl"), path = "bench/no_entrant.rs")]
mod entrant;
mod entry;
mod expected;
mod flags;
mod floor;
mod gathered;
mod hearing;
mod layer;
mod matmul;
mod moe;
mod norm;
mod overhead;
mod overlap;
mod plot;
mod race;
mod report;
mod side;
mod squares;

use clap::Subcommand;
use symmetra::Algorithm;

use crate::all_reduce::Collective;
use crate::failure::Failure;
use entry::{AllReduceArgs, ExchangeArgs};
pub(crate) use flags::distinct;
pub(crate) use floor::Floor;
pub(crate) use layer::LayerRace;
pub(crate) use matmul::MatmulRace;
pub(crate) use moe::{MoeRace, MoeSplit};
pub(crate) use norm::NormRace;
pub(crate) use overhead::Overhead;
pub(crate) use overlap::Overlap;
pub(crate) use race::Race;

/// Measure: the library beside others, the floor of the hardware, the cost of a call.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    AllReduce(AllReduceArgs),
    AllReduceNorm(norm::Args),
    /// All-gather beside other libraries
    AllGather(ExchangeArgs),
    /// Reduce-scatter (sum) beside other libraries
    ReduceScatter(ExchangeArgs),
    /// All-to-all beside other libraries
    AllToAll(ExchangeArgs),
    /// Broadcast beside other libraries
    Broadcast(ExchangeArgs),
    Layer(layer::Args),
    Matmul(matmul::Args),
    Moe(moe::Args),
    Floor(floor::Args),
    Overhead(overhead::Args),
    Overlap(overlap::Args),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::AllReduce(args) => args.run(),
        What::AllReduceNorm(args) => norm::run(args),
        What::AllGather(args) => args.race.run(Collective::AllGather, Algorithm::Auto),
        What::ReduceScatter(args) => args.race.run(Collective::ReduceScatter, Algorithm::Auto),
        What::AllToAll(args) => args.race.run(Collective::AllToAll, Algorithm::Auto),
        What::Broadcast(args) => args.race.run(Collective::Broadcast, Algorithm::Auto),
        What::Layer(args) => layer::run(args),
        What::Matmul(args) => matmul::run(args),
        What::Moe(args) => moe::run(args),
        What::Floor(args) => floor::run(args),
        What::Overhead(args) => overhead::run(args),
        What::Overlap(args) => overlap::run(args),
    }
}
