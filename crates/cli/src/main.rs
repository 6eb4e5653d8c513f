//! The command `symmetra`: runs collectives, launches ranks, explains the machine.

mod all_reduce;
mod doctor;
mod exchange;
mod grid;
mod info;
mod launch;
mod mixed;
mod norm;
mod postmortem;
mod status;
mod trace;
mod tune;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};

use all_reduce::{Shards, Sweep};
use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::program;
use harness::ranks::{RankProcess, Task};
use mixed::GridSettings;
use norm::NormMeasurement;
use tune::TunePlan;

/// The name and the version of this build, its features and its commit.
static VERSION: LazyLock<String> = LazyLock::new(|| format!("symmetra {}", VERSION_ALONE.as_str()));

static VERSION_ALONE: LazyLock<String> = LazyLock::new(|| {
    let features = match info::features()[..] {
        [] => "no features".to_owned(),
        ref features => features.join(", "),
    };
    format!("{} ({features}; commit {})", env!("CARGO_PKG_VERSION"), env!("BUILD_COMMIT"))
});

/// GPU collectives inside one host; the same kernels on a CPU.
#[derive(Parser)]
#[command(
    name = "symmetra",
    version = VERSION_ALONE.as_str(),
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = program::AFTER_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    AllReduce(all_reduce::Args),
    AllReduceNorm(norm::Args),
    Mixed(mixed::Args),
    Tune(tune::Args),
    Launch(launch::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    Status(status::Args),
    Postmortem(postmortem::Args),
    Trace(trace::Args),
    /// One rank of another command.
    #[command(hide = true)]
    Rank,
    /// Another operation, whose description makes the command.
    #[command(skip)]
    Operation(CollectiveCommand, Box<exchange::Args>),
}

/// The parser, with a command for every operation.
fn command() -> clap::Command {
    let operations =
        all_reduce::commands().map(|(name, about)| exchange::Args::augment_args(clap::Command::new(name)).about(about));
    Cli::command().subcommands(operations)
}

/// The command of the command line: one of [`Command`], or an operation by its name.
fn parsed<A: Into<OsString> + Clone>(args: impl IntoIterator<Item = A>) -> Result<Command, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    match matches.subcommand().and_then(|(name, flags)| Some((all_reduce::operation(name)?, flags))) {
        Some((collective, flags)) => {
            Ok(Command::Operation(collective, Box::new(exchange::Args::from_arg_matches(flags)?)))
        }
        None => Ok(Cli::from_arg_matches(&matches)?.command),
    }
}

/// Does the part of one rank of the command that started this process.
fn rank() -> Result<(), CommandFailure> {
    let rank = RankProcess::begin()?;
    match rank.task() {
        Sweep::NAME => rank.work::<Sweep>(),
        Shards::NAME => rank.work::<Shards>(),
        TunePlan::NAME => rank.work::<TunePlan>(),
        NormMeasurement::NAME => rank.work::<NormMeasurement>(),
        GridSettings::NAME => rank.work::<GridSettings>(),
        other => Err(RankProcess::misled(format!("there is no task `{other}`"))),
    }
}

fn run(command: Command) -> Result<(), CommandFailure> {
    // The command that started a rank has warned already.
    if !matches!(command, Command::Rank) {
        symmetra::environment::warn_of_variables();
    }
    match command {
        Command::AllReduce(args) => all_reduce::run(&args),
        Command::AllReduceNorm(args) => norm::run(&args),
        Command::Mixed(args) => mixed::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Postmortem(args) => postmortem::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Rank => rank(),
        Command::Operation(collective, args) => all_reduce::run_exchange(collective, &args),
    }
}

fn main() -> ExitCode {
    program::run(parsed(std::env::args_os()), run)
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/main.rs"]
mod tests;
