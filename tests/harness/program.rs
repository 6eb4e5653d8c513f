//! A program of the repository as a user runs it. `PROGRAM` of the module above is its path.
#![allow(dead_code, reason = "each program's tests use a part")]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The world sizes of sweeps: all, or without `SYMMETRA_TEST_FULL` some.
pub(crate) fn worlds() -> Vec<usize> {
    if full() { (1..=8).collect() } else { vec![1, 2, 5] }
}

/// Whether a run tries all there is.
pub(crate) fn full() -> bool {
    std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// How a run of the command ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    /// Fails with the outputs of the command unless it succeeded.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Failed with this code and an error that has these words in it; wrote no data.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let error = self.stderr.lines().skip_while(|line| !line.starts_with("error: ")).collect::<Vec<_>>().join("\n");
        for word in words {
            assert!(error.contains(word), "`{word}` is not in: {}", self.stderr);
        }
    }

    /// No line of its data is longer than a terminal of `width` characters.
    pub(crate) fn fits(&self, width: usize) {
        let longest = self.stdout.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{} characters: {longest}", longest.chars().count());
    }

    /// Its lines of JSON.
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(super::PROGRAM);
    command.args(args).stdin(Stdio::null()).env_remove("SYMMETRA_LOG").env_remove("COLUMNS");
    command
}

/// Runs the program with arguments that hold no spaces.
pub(crate) fn run(args: &str) -> Run {
    command(args.split_whitespace()).output().unwrap().into()
}

/// Runs the program for a terminal in which no table breaks a line, however long the times of a slow machine are.
pub(crate) fn wide(args: &str) -> Run {
    command(args.split_whitespace()).env("COLUMNS", "1000").output().unwrap().into()
}

/// Runs the program with these arguments, of any bytes.
pub(crate) fn run_with<S: AsRef<OsStr>>(args: &[S]) -> Run {
    command(args).output().unwrap().into()
}

/// Polls until `ready`; fails after half a minute.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < end, "{what} did not happen in 30 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Processes that a process started itself.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
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
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    test_kill_process(pid).is_ok() && !matches!(state, Some(b'Z' | b'X') | None)
}

/// The output of a run of two ranks when a signal ends the run after its first row.
pub(crate) fn printed_at_a_signal(args: &str, columns: &str) -> String {
    // How long the first row takes is the machine's.
    let mut printed = (0..6).map(|power| {
        let mut run = command(args.split(' '));
        run.args(["--device", "host", "--ranks", "2"]).env("COLUMNS", columns);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(1 << power));
        kill_process(pid(&run), Signal::TERM).unwrap();
        String::from_utf8(run.wait_with_output().unwrap().stdout).unwrap()
    });
    let printed = printed.find(|text| !text.is_empty() && !text.contains("\"rows\":[]"));
    printed.unwrap_or_else(|| panic!("{args}: no output"))
}

/// The help of a command, without its line breaks.
pub(crate) fn help(command: &str) -> String {
    run(&format!("{command} --help")).ok().stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}
