//! The program `symmetra-bench`: the library compared with other libraries, times of the hardware, the cost of a call.

mod collective;
mod driver;
mod flags;
mod floor;
mod layer;
mod limits;
mod matmul;
mod moe;
mod norm;
mod overhead;
mod overlap;
mod pace;
mod pairs;
mod pattern;
mod plot;
mod race;
mod report;
mod results;
mod squares;

use std::process::ExitCode;

use clap::Parser;
use symmetra::Algorithm;

use collective::{AllReduceRaceArgs, CollectiveRace, ExchangeRaceArgs};
use floor::Floor;
use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::program;
use harness::ranks::{RankProcess, Task};
use layer::LayerRace;
use matmul::MatmulRace;
use moe::{MoeRace, MoeSplit};
use norm::NormRace;
use overhead::Overhead;
use overlap::Overlap;
use pairs::PairsRace;
use race::{Race, Raced};

/// GPU collectives compared with other libraries, the floor of the hardware, the cost of a call.
#[derive(Parser)]
#[command(
    name = "symmetra-bench",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = program::AFTER_HELP
)]
enum Command {
    AllReduce(AllReduceRaceArgs),
    AllReduceNorm(norm::Args),
    /// All-gather compared with other libraries
    AllGather(ExchangeRaceArgs),
    /// Reduce-scatter (sum) compared with other libraries
    ReduceScatter(ExchangeRaceArgs),
    /// All-to-all compared with other libraries
    AllToAll(ExchangeRaceArgs),
    /// Broadcast compared with other libraries
    Broadcast(ExchangeRaceArgs),
    Layer(layer::Args),
    Matmul(matmul::Args),
    Moe(moe::Args),
    Pairs(pairs::Args),
    Floor(floor::Args),
    Overhead(overhead::Args),
    Overlap(overlap::Args),
    /// One rank of another command.
    #[command(hide = true)]
    Rank,
}

/// Does the part of one rank of the command that started this process.
fn rank() -> Result<(), CommandFailure> {
    let rank = RankProcess::begin()?;
    match rank.task() {
        CollectiveRace::NAME => rank.work::<Raced<CollectiveRace>>(),
        NormRace::NAME => rank.work::<Raced<NormRace>>(),
        LayerRace::NAME => rank.work::<Raced<LayerRace>>(),
        MatmulRace::NAME => rank.work::<Raced<MatmulRace>>(),
        MoeRace::NAME => rank.work::<Raced<MoeRace>>(),
        PairsRace::NAME => rank.work::<Raced<PairsRace>>(),
        MoeSplit::NAME => rank.work::<MoeSplit>(),
        Floor::NAME => rank.work::<Floor>(),
        Overhead::NAME => rank.work::<Overhead>(),
        Overlap::NAME => rank.work::<Overlap>(),
        other => Err(RankProcess::misled(format!("there is no task `{other}`"))),
    }
}

fn run(command: Command) -> Result<(), CommandFailure> {
    // The command that started a rank has warned already.
    if !matches!(command, Command::Rank) {
        symmetra::environment::warn_of_variables();
    }
    match &command {
        Command::AllReduce(args) => args.run(),
        Command::AllReduceNorm(args) => norm::run(args),
        Command::AllGather(args) => args.args.run(CollectiveCommand::AllGather, Algorithm::Auto),
        Command::ReduceScatter(args) => args.args.run(CollectiveCommand::ReduceScatter, Algorithm::Auto),
        Command::AllToAll(args) => args.args.run(CollectiveCommand::AllToAll, Algorithm::Auto),
        Command::Broadcast(args) => args.args.run(CollectiveCommand::Broadcast, Algorithm::Auto),
        Command::Layer(args) => layer::run(args),
        Command::Matmul(args) => matmul::run(args),
        Command::Moe(args) => moe::run(args),
        Command::Pairs(args) => pairs::run(args),
        Command::Floor(args) => floor::run(args),
        Command::Overhead(args) => overhead::run(args),
        Command::Overlap(args) => overlap::run(args),
        Command::Rank => rank(),
    }
}

fn main() -> ExitCode {
    program::run(Command::try_parse(), run)
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/main.rs"]
mod tests;
