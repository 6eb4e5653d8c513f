//! `symmetra status`: the ranks of running groups, and the rank for which they wait.

mod table;
mod timings;

use std::time::Duration;

use symmetra::observe::{Snapshot, look};

use harness::failure::CommandFailure;
use harness::output;

/// Show the ranks of running groups of this user, and the rank for which a group waits.
///
/// The groups are found by the control pages that the processes of ranks have open. The pages are read; nothing is sent to
/// the processes, and a process that hangs, is stopped or has ended is shown too.
///
/// Exit status: 0, 1 if a group has failed, has a stopped or dead rank, or waits as long as --patience, 2 if PROCESS has
/// no group.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra status
  symmetra status --timings
  symmetra status --json
  symmetra status --watch 4711")]
pub(crate) struct Args {
    /// Only groups of this process and of the processes that it started
    process: Option<u32>,

    /// Look once a second, until a signal ends the command
    #[arg(long)]
    watch: bool,

    /// Also print the times of calls of programs that time them (SYMMETRA_TIMING=1)
    ///
    /// A row for each operation, size class and algorithm, over the last 4096 calls of each rank: median and 99th percentile,
    /// time of a rank in total, bus bandwidth of the time without waiting, and the ranks for which the others waited, with the
    /// share of the time.
    #[arg(long)]
    timings: bool,

    /// Print one JSON object a look instead of text
    #[arg(long)]
    json: bool,

    /// Seconds of a wait from which on a group counts as unhealthy
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    patience: f64,
}

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// A number of seconds that is a duration.
fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    Duration::try_from_secs_f64(number).map(|_| number).map_err(|_| "a number from 0 on is needed".to_owned())
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let patience = Duration::from_secs_f64(args.patience);
    loop {
        let snapshot = look(args.process).map_err(refused)?;
        match args.json {
            true => output::json(&snapshot)?,
            false => table::print(&snapshot, args)?,
        }
        if !args.watch {
            return conclude(args, &snapshot, patience);
        }
        std::thread::sleep(PERIOD);
    }
}

/// The failure of a look. A process without a group is an error of the caller.
fn refused(error: symmetra::Error) -> CommandFailure {
    match error {
        symmetra::Error::InvalidArgument { .. } => CommandFailure::usage(error.to_string()),
        error => error.into(),
    }
}

/// The result of the command after its last look.
fn conclude(args: &Args, snapshot: &Snapshot, patience: Duration) -> Result<(), CommandFailure> {
    let groups = snapshot.groups.len();
    let unhealthy = snapshot.groups.iter().filter(|group| !group.verdict.is_healthy(patience)).count();
    if let (0, Some(process)) = (groups, args.process) {
        return Err(CommandFailure::usage(format!("no page of process {process} can be read")));
    }
    if groups == 0 {
        output::note("no group was found")?;
    }
    if snapshot.refused_processes > 0 {
        output::note(format_args!(
            "the kernel does not show the files of {} processes of other users",
            snapshot.refused_processes
        ))?;
    }
    match (unhealthy, groups) {
        (0, _) => Ok(()),
        (1, 1) => Err(CommandFailure::failed("the group is unhealthy")),
        (unhealthy, groups) => Err(CommandFailure::failed(format!("{unhealthy} of {groups} groups are unhealthy"))),
    }
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/status.rs"]
mod tests;
