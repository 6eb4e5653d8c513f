//! `symmetra postmortem`: merges the histories that the ranks of a group have written.

mod merge;
mod timeline;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use symmetra::observe::Record;

use harness::failure::CommandFailure;
use harness::table::Table;
use harness::{output, target};
use merge::{Merged, merge};

/// Merge the histories that ranks have written, and name the first call in which they differ.
///
/// The folder is that of the variable SYMMETRA_DUMP or of Communicator::dump. For each group the command prints a row a
/// rank, the first call in which ranks differ or that a rank has not made, and the rank that caused the failure.
///
/// Exit status: 0, or 2 if the folder has no history.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra postmortem dumps
  symmetra postmortem dumps --svg timeline.svg")]
pub(crate) struct Args {
    /// The folder of the histories
    folder: PathBuf,

    /// Draw the calls of each rank over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object a group instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    args.svg.iter().try_for_each(|path| target::check_written("--svg", path))?;
    let groups = groups(&args.folder)?;
    let merged: Vec<Merged> = groups.iter().map(|records| merge(records)).collect();
    for merged in &merged {
        match args.json {
            true => output::json(merged)?,
            false => output::line(text(merged))?,
        }
    }
    let Some(path) = &args.svg else { return Ok(()) };
    let drawn = timeline::draw(groups.iter().map(Vec::as_slice).zip(&merged));
    std::fs::write(path, drawn).map_err(CommandFailure::doing(format_args!("write {}", path.display())))
}

/// The records of each group of a folder, in rank order.
fn groups(folder: &Path) -> Result<Vec<Vec<Record>>, CommandFailure> {
    let reading = || CommandFailure::doing(format!("read {}", folder.display()));
    let (mut groups, mut unopened) = (BTreeMap::<(String, u64), Vec<Record>>::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("symmetra-") || !name.ends_with(".json") {
            continue;
        }
        match Record::read(&path) {
            Ok(record) if record.group == 0 => unopened.push(record),
            Ok(record) => groups.entry((record.boot.clone(), record.group)).or_default().push(record),
            Err(error) => output::note(format_args!("{} is left out: {error}", path.display()))?,
        }
    }
    let mut groups: Vec<_> = groups.into_values().chain(openings(unopened)).collect();
    if groups.is_empty() {
        return Err(CommandFailure::usage(format!("{} has no history of a rank", folder.display())));
    }
    groups.iter_mut().for_each(|records| records.sort_by_key(|record| record.rank));
    Ok(groups)
}

/// The records of each group that did not open and has no number. Ranks of one opening wait for each other, so their times
/// overlap.
fn openings(mut records: Vec<Record>) -> Vec<Vec<Record>> {
    records.sort_by_key(|record| record.begun_ns);
    let mut openings: Vec<Vec<Record>> = Vec::new();
    for record in records {
        let fits = |other: &Record| {
            let overlaps = other.begun_ns <= record.written_ns && record.begun_ns <= other.written_ns;
            overlaps && other.rank != record.rank && other.world_size == record.world_size
        };
        match openings.iter_mut().find(|opening| opening.iter().all(fits)) {
            Some(opening) => opening.push(record),
            None => openings.push(vec![record]),
        }
    }
    openings
}

/// A group as text.
fn text(merged: &Merged) -> String {
    let mut table = Table::new(["rank", "process", "host", "enqueued", "ended", "last call", "reason"], [0, 1, 3, 4]);
    for rank in &merged.ranks {
        let ended = rank.ended.map_or_else(|| "-".to_owned(), |ended| ended.to_string());
        let last = rank.last_call.clone().unwrap_or_else(|| "-".to_owned());
        let numbers = [rank.rank.to_string(), rank.process.to_string()];
        let [number, process] = numbers;
        table.add_row([
            number,
            process,
            rank.host.clone(),
            rank.enqueued.to_string(),
            ended,
            last,
            rank.reason.clone(),
        ]);
    }
    format!("{}\n{table}\n{}", merged.title(), merged.words)
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/postmortem.rs"]
mod tests;
