//! The command `symmetra`: runs collectives, launches ranks, explains the machine.

#[macro_use]
mod element;
mod all_reduce;
mod bench;
mod bytes;
mod contest;
mod devices;
mod doctor;
mod exchange;
mod experts;
mod failure;
mod grid;
mod info;
mod launch;
mod mixed;
mod names;
mod norm;
mod nvshmem;
mod orphan;
mod output;
mod ranks;
mod signals;
mod sizes;
mod statistics;
mod table;
mod target;
mod tensor_file;
mod tune;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};

use all_reduce::{Collective, Shards, Sweep};
use bench::{Floor, LayerRace, MatmulRace, MoeRace, MoeSplit, NormRace, Overhead, Overlap, Race};
use failure::Failure;
use mixed::Grids;
use norm::Norms;
use ranks::{RankProcess, Task};
use tune::Plan;

/// GPU collectives inside one host; the same kernels on a CPU.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
With --json a command prints JSON instead of tables. Tables fit the terminal; where standard output is none, they fit
COLUMNS, or 80 columns."
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
    Bench(bench::Args),
    Tune(tune::Args),
    Launch(launch::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    /// One rank of another command.
    #[command(hide = true)]
    Rank,
    /// Another operation, whose description makes the command.
    #[command(skip)]
    Operation(Collective, Box<exchange::Args>),
}

/// What the command line asks for: one of [`Command`], or an operation by its name.
fn asked() -> Result<Command, clap::Error> {
    let operations =
        all_reduce::commands().map(|(name, about)| exchange::Args::augment_args(clap::Command::new(name)).about(about));
    let matches = Cli::command().subcommands(operations).try_get_matches()?;
    match matches.subcommand().and_then(|(name, flags)| Some((all_reduce::operation(name)?, flags))) {
        Some((collective, flags)) => {
            Ok(Command::Operation(collective, Box::new(exchange::Args::from_arg_matches(flags)?)))
        }
        None => Ok(Cli::from_arg_matches(&matches)?.command),
    }
}

/// Does the part of one rank of the command that started this process.
fn rank() -> Result<(), Failure> {
    let rank = RankProcess::begin()?;
    match rank.task() {
        Sweep::NAME => rank.work::<Sweep>(),
        Shards::NAME => rank.work::<Shards>(),
        Race::NAME => rank.work::<Race>(),
        NormRace::NAME => rank.work::<NormRace>(),
        LayerRace::NAME => rank.work::<LayerRace>(),
        MatmulRace::NAME => rank.work::<MatmulRace>(),
        MoeRace::NAME => rank.work::<MoeRace>(),
        MoeSplit::NAME => rank.work::<MoeSplit>(),
        Floor::NAME => rank.work::<Floor>(),
        Overhead::NAME => rank.work::<Overhead>(),
        Overlap::NAME => rank.work::<Overlap>(),
        Plan::NAME => rank.work::<Plan>(),
        Norms::NAME => rank.work::<Norms>(),
        Grids::NAME => rank.work::<Grids>(),
        other => Err(RankProcess::misled(format!("there is no task `{other}`"))),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // Where standard error cannot be written, the exit code says that the command failed.
                let _ = output::note(format_args!("error: {message}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Prints what the parser has to say: help and the version are output as any other.
fn print(said: &clap::Error) -> Result<ExitCode, Failure> {
    said.print().and_then(|()| std::io::stdout().flush()).map_err(Failure::output)?;
    Ok(ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1)))
}

fn run() -> Result<ExitCode, Failure> {
    let command = match asked() {
        Ok(command) => command,
        Err(said) => return print(&said),
    };
    // The command that started a rank has warned already.
    if !matches!(command, Command::Rank) {
        symmetra::environment::warn_of_variables();
    }
    match command {
        Command::AllReduce(args) => all_reduce::run(&args),
        Command::AllReduceNorm(args) => norm::run(&args),
        Command::Mixed(args) => mixed::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Rank => rank(),
        Command::Operation(collective, args) => all_reduce::run_exchange(collective, &args),
    }?;
    Ok(ExitCode::SUCCESS)
}
