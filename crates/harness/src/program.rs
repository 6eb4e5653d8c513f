//! The frame of a program: parses, runs, and ends with an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

use crate::failure::CommandFailure;
use crate::output;

/// The end of the help of a program.
pub const AFTER_HELP: &str = "\
With --json a command prints JSON instead of tables. Tables fit the width of the terminal. If standard output is \
not a terminal, tables fit the width in the variable COLUMNS, else 80 columns.";

/// Runs what was parsed. If parsing failed, or the user asked for help or the version, prints the parser's text.
pub fn run<C>(parsed: Result<C, clap::Error>, body: impl FnOnce(C) -> Result<(), CommandFailure>) -> ExitCode {
    let ended = match parsed {
        Ok(command) => body(command).map(|()| ExitCode::SUCCESS),
        Err(said) => print(&said),
    };
    ended.unwrap_or_else(|failure| {
        if let Some(message) = failure.message() {
            // If standard error cannot be written, the exit code still reports that the command failed.
            let _ = output::note(format_args!("error: {message}"));
        }
        ExitCode::from(failure.code())
    })
}

/// The name of an option for a short option of nccl-tests that means something else here. `None` for other options.
pub fn hint(said: &clap::Error) -> Option<&'static str> {
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

/// Prints the parser's text: help and the version are output as any other.
fn print(said: &clap::Error) -> Result<ExitCode, CommandFailure> {
    said.print().and_then(|()| std::io::stdout().flush()).map_err(CommandFailure::output)?;
    if let Some(hint) = hint(said) {
        output::note(format_args!("\n  tip: {hint}"))?;
    }
    Ok(ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1)))
}
