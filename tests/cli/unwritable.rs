//! Output that cannot be written, of every command.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Run, command};

/// A file without room.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Commands that succeed and write to standard output.
const COMMANDS: [&str; 14] = [
    "--help",
    "--version",
    "all-reduce --help",
    "help all-gather",
    "all-reduce --device host --ranks 1 --max-bytes 1KiB --iterations 1",
    "all-reduce --device host --ranks 1 --max-bytes 1KiB --iterations 1 --json",
    "all-to-all --device host --ranks 1 --max-bytes 1KiB --iterations 1",
    "all-reduce-norm --device host --ranks 1 --hidden 64 --tokens 1 --iterations 1",
    "mixed all-gather --device host --ranks 1 --max-bytes 1KiB --iterations 1",
    "info --device host",
    "info --device host --json",
    "doctor",
    "launch -n 2 -- echo words",
    "launch -n 2 --keep-others -- echo words",
];

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for args in COMMANDS {
        let run: Run = command(args.split(' ')).stdout(full()).output().unwrap().into();
        assert_ne!(run.code, 0, "{args}: {}", run.stderr);
        assert!(run.stderr.contains("error: cannot write the output: No space left"), "{args}: {}", run.stderr);
    }
}

/// The messages of a command and of its ranks on standard error are output too.
#[test]
fn standard_error_that_cannot_be_written_is_an_error() {
    for args in ["all-reduce --device host --ranks 1 --max-bytes 1KiB", "launch -n 1 -- ls /nonexistent", "launch"] {
        let mut run = command(args.split(' '));
        let run = run.stdout(Stdio::null()).stderr(full()).spawn().unwrap().wait().unwrap();
        assert!(matches!(run.code(), Some(1 | 2)), "{args}: {run:?}");
    }
}

#[test]
fn ranks_whose_output_cannot_be_written_are_ended() {
    let start = Instant::now();
    let args = ["launch", "-n", "2", "--", "sh", "-c", "echo words; exec sleep 60"];
    let run: Run = command(args).stdout(full()).output().unwrap().into();
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn ranks_whose_output_nobody_reads_any_more_are_ended() {
    let script = "echo first; while :; do sleep 0.05; echo more; done";
    let mut run = command(["launch", "-n", "2", "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let start = Instant::now();
    let run: Run = run.wait_with_output().unwrap().into();
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
