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
mod guarded;
mod info;
mod launch;
mod live;
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

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};

use all_reduce::{Collective, Shards, Sweep};
use bench::{Floor, LayerRace, MatmulRace, MoeRace, MoeSplit, NormRace, Overhead, Overlap, Race};
use failure::Failure;
use mixed::Grids;
use norm::Norms;
use ranks::{RankProcess, Task};
use tune::Plan;

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
    after_help = "\
With --json a command prints JSON instead of tables. Tables fit the terminal; where standard output is none, they fit \
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

/// The parser, with a command for every operation.
fn command() -> clap::Command {
    let operations =
        all_reduce::commands().map(|(name, about)| exchange::Args::augment_args(clap::Command::new(name)).about(about));
    Cli::command().subcommands(operations)
}

/// What the command line asks for: one of [`Command`], or an operation by its name.
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

/// What stands here for a short option of nccl-tests that means something else here, or nothing.
fn hint(said: &clap::Error) -> Option<&'static str> {
    let value = |kind| said.get(kind).map(ToString::to_string);
    match (said.kind(), value(ContextKind::InvalidArg)?.as_str()) {
        (ErrorKind::UnknownArgument, "-g" | "-t") => Some("the GPUs and threads of nccl-tests are --ranks here"),
        (ErrorKind::UnknownArgument, "-w") => Some("the -w of nccl-tests is --warmup here"),
        (ErrorKind::UnknownArgument, "-d") => Some("the -d of nccl-tests is --dtype here"),
        (ErrorKind::UnknownArgument, "-o") => Some("the -o of nccl-tests is --op here"),
        (ErrorKind::ValueValidation, argument) if argument.starts_with("--ranks") => {
            Some("-n is the number of ranks; the -n of nccl-tests is --iterations here")
        }
        _ => None,
    }
}

/// Prints what the parser has to say: help and the version are output as any other.
fn print(said: &clap::Error) -> Result<ExitCode, Failure> {
    said.print().and_then(|()| std::io::stdout().flush()).map_err(Failure::output)?;
    if let Some(hint) = hint(said) {
        output::note(format_args!("\n  tip: {hint}"))?;
    }
    Ok(ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1)))
}

fn run() -> Result<ExitCode, Failure> {
    let command = match parsed(std::env::args_os()) {
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

#[cfg(test)]
#[path = "../../../tests/cli/unit/main.rs"]
mod tests;
