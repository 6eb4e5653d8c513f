//! The command `symmetra` as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod all_reduce;
mod bench;
mod diagnosis;
mod documents;
mod exchange;
mod files;
mod hostile;
mod launch;
mod layer;
mod leftovers;
mod matmul;
mod mixed;
mod moe;
mod norm;
mod nvshmem;
mod tensors;
mod tune;
mod unwritable;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

/// The world sizes of sweeps: all, or without `SYMMETRA_TEST_FULL` some.
fn worlds() -> Vec<usize> {
    if full() { (1..=8).collect() } else { vec![1, 2, 5] }
}

/// Whether a run tries all there is.
fn full() -> bool {
    std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// How a run of the command ended.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    /// Succeeded, or tells what it said.
    fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Failed with this code and an error that has these words in it; wrote no data.
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let error = self.stderr.lines().skip_while(|line| !line.starts_with("error: ")).collect::<Vec<_>>().join("\n");
        for word in words {
            assert!(error.contains(word), "`{word}` is not in: {}", self.stderr);
        }
    }

    /// No line of its data is longer than a terminal of `width` characters.
    fn fits(&self, width: usize) {
        let longest = self.stdout.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{} characters: {longest}", longest.chars().count());
    }

    /// Its lines of JSON.
    fn objects(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
    command.args(args).stdin(Stdio::null()).env_remove("SYMMETRA_LOG").env_remove("COLUMNS");
    command
}

/// Runs the command with arguments that hold no spaces.
fn symmetra(args: &str) -> Run {
    command(args.split_whitespace()).output().unwrap().into()
}

/// Runs the command for a terminal in which no table breaks a line, however long the times of a slow machine are.
fn wide(args: &str) -> Run {
    command(args.split_whitespace()).env("COLUMNS", "1000").output().unwrap().into()
}

/// Runs the program with these arguments, of any bytes.
fn symmetra_with<S: AsRef<OsStr>>(args: &[S]) -> Run {
    command(args).output().unwrap().into()
}

/// Polls until `ready`; fails after half a minute.
fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < end, "{what} did not happen in 30 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Processes that a process started itself.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid();
    let tasks = Path::new("/proc").join(parent.to_string()).join("task");
    let tasks =
        std::fs::read_dir(tasks).map(|tasks| tasks.filter_map(Result::ok).collect()).unwrap_or_else(|_| Vec::new());
    let lists = tasks.iter().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}

/// Whether a process is there and not only waiting to be asked how it ended.
fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    test_kill_process(pid).is_ok() && !matches!(state, Some(b'Z' | b'X') | None)
}
