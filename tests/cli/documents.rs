//! The commands of README.md and docs/*.md, run as they stand. Commands of `tune`, and commands that name files of
//! users, are only parsed (`unit/main.rs`).

#[path = "../harness/commands.rs"]
mod commands;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use commands::Place;
use rustix::process::{Signal, kill_process};

use super::{Run, command, pid};

/// The commands that measure begin to, and their first rows are right. Other tests try all rows of each command.
#[test]
fn the_tables_of_the_documents_have_commands_that_run() {
    let mut names = Vec::new();
    for shown in commands::all("symmetra").into_iter().filter(|shown| shown.place == Place::Table) {
        let mut run = command(shown.args.split(' '));
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let is_row = |line: &String| line.split_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok());
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.find(|line| is_row(line));
        // Not SIGINT, which tests that run in the background may ignore.
        kill_process(pid(&run), Signal::TERM).unwrap();
        let end = run.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&end.stderr);
        assert!(first.is_some_and(|row| row.ends_with(" 0")), "{shown}: {words}");
        // Or it was done before.
        assert!(end.status.signal() == Some(Signal::TERM.as_raw()) || end.status.success(), "{shown}: {words}");
        names.push(shown.args.split(' ').next().unwrap().to_owned());
    }
    names.dedup();
    assert!(names.len() > 12, "{names:?}");
}

#[test]
fn the_documents_have_questions_that_are_answered() {
    let asks = |args: &str| args.starts_with("info") || args.contains("--explain");
    let shown =
        commands::all("symmetra").into_iter().filter(|shown| asks(&shown.args) && !shown.args.contains("tuning.json"));
    let mut number = 0;
    for shown in shown {
        let run: Run = command(shown.args.split(' ')).output().unwrap().into();
        assert_eq!(run.code, 0, "{shown}: {}", run.stderr);
        number += 1;
    }
    assert!(number >= 5, "{number}");
}
