//! The command `symmetra`: runs collectives, launches ranks, explains the machine.

#[macro_use]
mod element;
mod all_reduce;
mod bench;
mod bytes;
mod devices;
mod doctor;
mod exchange;
mod failure;
mod info;
mod launch;
mod names;
mod orphan;
mod output;
mod signals;
mod target;
mod tensor_file;
mod tune;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use all_reduce::Collective;

/// GPU collectives inside one host; the same kernels on a CPU.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    AllReduce(all_reduce::Args),
    /// The inputs of all ranks, one behind the other, in every rank: measure and verify a sweep of sizes
    AllGather(exchange::Args),
    /// Each rank's part of the reduction of all inputs: measure and verify a sweep of sizes
    ReduceScatter(exchange::Args),
    /// A part of every rank's input for every rank: measure and verify a sweep of sizes
    AllToAll(exchange::Args),
    /// What the root has, in every rank: measure and verify a sweep of sizes
    Broadcast(exchange::Args),
    /// The reduction of all inputs, in the root: measure and verify a sweep of sizes
    Reduce(exchange::Args),
    /// The inputs of all ranks, one behind the other, in the root: measure and verify a sweep of sizes
    Gather(exchange::Args),
    /// A part of the root's input for every rank: measure and verify a sweep of sizes
    Scatter(exchange::Args),
    /// From every rank to the next: measure and verify a sweep of sizes
    SendReceive(exchange::Args),
    Bench(bench::Args),
    Tune(tune::Args),
    Launch(launch::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    /// One rank of `all-reduce`, started by it.
    #[command(hide = true)]
    Rank,
}

/// Whether whoever reads the log wants colours (<https://no-color.org>).
fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|asked| asked.is_empty())
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours()).init();
    let command = Cli::parse().command;
    // Ranks have it from the command that started them.
    if !matches!(command, Command::Rank) {
        symmetra::environment::warn_of_variables();
    }
    let done = match command {
        Command::AllReduce(args) => all_reduce::run(&args),
        Command::AllGather(args) => exchange::run(Collective::AllGather, &args),
        Command::ReduceScatter(args) => exchange::run(Collective::ReduceScatter, &args),
        Command::AllToAll(args) => exchange::run(Collective::AllToAll, &args),
        Command::Broadcast(args) => exchange::run(Collective::Broadcast, &args),
        Command::Reduce(args) => exchange::run(Collective::Reduce, &args),
        Command::Gather(args) => exchange::run(Collective::Gather, &args),
        Command::Scatter(args) => exchange::run(Collective::Scatter, &args),
        Command::SendReceive(args) => exchange::run(Collective::SendReceive, &args),
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Rank => all_reduce::rank_process(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                eprintln!("error: {message}");
            }
            ExitCode::from(failure.code())
        }
    }
}
