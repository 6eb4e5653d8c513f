//! The command `symmetra`: runs collectives, launches ranks, explains the machine.

#[macro_use]
mod element;
mod all_reduce;
mod bench;
mod bytes;
mod devices;
mod doctor;
mod failure;
mod info;
mod launch;
mod names;
mod orphan;
mod output;
mod tensor_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Bench(bench::Args),
    Launch(launch::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    /// One rank of `all-reduce`, started by it.
    #[command(hide = true)]
    Rank,
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match Cli::parse().command {
        Command::AllReduce(args) => all_reduce::run(&args),
        Command::Bench(args) => bench::run(&args),
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
