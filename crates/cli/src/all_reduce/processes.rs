//! Ranks as processes: this program once more for each, told its part on standard input, saying
//! how it fares on standard output, a line of JSON each time.

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, getpid};
use rustix::stdio::{dup2_stdout, stderr, stdout};
use serde::{Deserialize, Serialize};
use symmetra::bootstrap::Local;
use tempfile::TempDir;

use super::crew::{Crew, Hands, Heard};
use super::job::{Job, Said};
use crate::failure::Failure;
use crate::{orphan, output};

/// How long the ranks have to start.
const MEET: Duration = Duration::from_secs(60);

/// How long a rank has to exit once it has said all: long enough for drivers and libraries to end in.
const EXIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// One rank's part.
#[derive(Serialize, Deserialize)]
struct Part {
    rank: usize,
    /// Where the ranks meet.
    directory: PathBuf,
    /// The process that started this one, without which there is nothing to do.
    parent: i32,
    job: Job,
}

/// The processes, and the directory that they meet in.
struct Team {
    children: Vec<Child>,
    directory: Option<TempDir>,
}

impl Hands for Team {
    /// The directory is of no further use: nothing of it is left when we are interrupted.
    fn all_open(&mut self) {
        self.directory = None;
    }

    fn end(&mut self, rank: usize, done: bool) -> Option<String> {
        match self.children.get_mut(rank).map(wait) {
            Some(Ok(Some(status))) if done && status.success() => None,
            Some(Ok(Some(status))) => Some(describe(status, done)),
            Some(Ok(None)) => Some(format!("said no more, and did not end for {} s", EXIT.as_secs())),
            Some(Err(error)) => Some(format!("ended, nobody knows how: {error}")),
            None => Some("never was".to_owned()),
        }
    }

    fn stop(&mut self) {
        for child in &mut self.children {
            // Fails when it has ended by itself.
            let _ = child.kill();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.stop();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Waits for a rank that says no more; kills it when that takes too long.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + EXIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            return child.wait().map(|_| None);
        }
        std::thread::sleep(LOOK);
    }
}

fn describe(status: ExitStatus, done: bool) -> String {
    let when = if done { "after" } else { "before" };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal} {when} it was done"),
        (None, code) => format!("ended with status {} {when} it was done", code.unwrap_or(-1)),
    }
}

/// Starts every rank.
pub(super) fn start(job: &Job) -> Result<Crew, Failure> {
    let directory = tempfile::Builder::new().prefix("symmetra-").permissions(Permissions::from_mode(0o700)).tempdir();
    let directory = directory.map_err(Failure::doing("make a directory for the ranks to meet in"))?;
    let path = directory.path().to_owned();
    let mut team = Team { children: Vec::new(), directory: Some(directory) };
    let (sender, heard) = channel();
    for rank in 0..job.ranks() {
        let part = Part { rank, directory: path.clone(), parent: getpid().as_raw_pid(), job: job.clone() };
        team.spawn(&part, sender.clone())?;
    }
    Ok(Crew { heard, hands: Box::new(team), ranks: job.ranks() })
}

impl Team {
    fn spawn(&mut self, part: &Part, sender: Sender<(usize, Heard)>) -> Result<(), Failure> {
        let rank = part.rank;
        let program = std::env::current_exe().map_err(Failure::doing("find this program"))?;
        let child = Command::new(program).arg("rank").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(Failure::doing(format!("start rank {rank}")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        self.children.push(child);
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(Failure::failed(format!("rank {rank} was started without its pipes")));
        };
        let text = serde_json::to_vec(part).map_err(Failure::doing("write a rank's part"))?;
        // A rank that died at once is found when its output ends.
        let _ = stdin.write_all(&text);
        let listen = move || listen(rank, stdout, &sender);
        std::thread::Builder::new().spawn(listen).map_err(Failure::doing("start a thread"))?;
        Ok(())
    }
}

/// Hands on what a rank says until it ends.
fn listen(rank: usize, stdout: ChildStdout, sender: &Sender<(usize, Heard)>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let said = serde_json::from_str(&line).unwrap_or_else(|error| Said::Failed {
            message: format!("said something else than it should ({error}): {line}"),
            echo: false,
        });
        if sender.send((rank, Heard::Said(said))).is_err() {
            return;
        }
    }
    let _ = sender.send((rank, Heard::Ended));
}

/// The other side: does the part that standard input names.
pub(crate) fn rank_process() -> Result<(), Failure> {
    let mut out = own_output().map_err(Failure::doing("keep standard output to this rank"))?;
    let part: Part = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| Failure::usage(format!("`rank` is started by `all-reduce` only: {error}")))?;
    let parent = Pid::from_raw(part.parent).ok_or_else(|| Failure::failed("a rank without a parent"))?;
    orphan::end_with(parent).map_err(Failure::doing("tie this rank to its parent"))?;
    let bootstrap = Local::connect(&part.directory, part.rank, part.job.ranks(), Instant::now() + MEET);
    part.job.run(part.rank, bootstrap.map_err(Failure::from), &mut |said| output::json_to(&mut out, &said));
    Ok(())
}

/// Standard output for this program alone. What libraries write there (NCCL does, when it is asked to talk) goes
/// to standard error from here on.
fn own_output() -> std::io::Result<File> {
    let out = fcntl_dupfd_cloexec(stdout(), 0)?;
    dup2_stdout(stderr())?;
    Ok(File::from(out))
}
