//! Ranks as processes of this program. A rank reads its task from standard input and writes its results to standard
//! output, in lines of JSON.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::stdio::{dup2_stdout, stderr, stdout};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use symmetra::bootstrap::{Directory, Local};

use super::listen::{Hands, Heard, StartedRanks};
use super::task::{Run, Said, Task};
use crate::failure::{CommandFailure, spawn};
use crate::signals::{Guard, guard};
use crate::{orphan, output, signals};

/// How long the ranks have to start.
const MEET: Duration = Duration::from_secs(60);

/// How long a rank may take to exit after its last line: drivers and libraries need some time.
const EXIT: Duration = Duration::from_secs(10);
/// Time between two looks for the exit.
const LOOK: Duration = Duration::from_millis(1);

/// A rank's place in a run: the first line that its process reads. The second is the [`Run`].
#[derive(Serialize, Deserialize)]
struct RunPlace {
    rank: usize,
    /// Where the ranks meet.
    directory: PathBuf,
    /// The process that started this one. The rank ends with it.
    parent: i32,
    /// The name of the task.
    task: String,
}

/// The processes.
struct ProcessTeam {
    children: Vec<Child>,
    traces: Guard<Traces>,
}

/// The directory and the processes that remain if this command ends before its ranks.
struct Traces {
    /// Where the ranks meet, until they have met.
    directory: Option<Directory>,
    /// The process of every rank, as far as the system has such descriptors.
    ranks: Vec<OwnedFd>,
}

impl Drop for Traces {
    fn drop(&mut self) {
        for rank in &self.ranks {
            // Fails when the rank has ended.
            let _ = pidfd_send_signal(rank, Signal::KILL);
        }
        // A rank has directories of its own until it has ended.
        for rank in &self.ranks {
            let limit = Timespec { tv_sec: EXIT.as_secs() as i64, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(rank, PollFlags::IN)], Some(&limit));
        }
        self.directory = None;
        // Directories that cannot be removed now are removed by the next command.
        let _ = Directory::sweep();
    }
}

impl Hands for ProcessTeam {
    /// Removes the directory, so that a killed command leaves no files.
    fn all_open(&mut self) {
        self.traces.change(|traces| traces.directory = None);
    }

    fn end(&mut self, rank: usize, done: bool) -> Option<String> {
        match self.children.get_mut(rank).map(wait) {
            Some(Ok(Some(status))) if done && status.success() => None,
            Some(Ok(Some(status))) => Some(describe(status, done)),
            Some(Ok(None)) => Some(format!("sent no more reports, and did not end for {} s", EXIT.as_secs())),
            Some(Err(error)) => Some(format!("ended, but its exit status is unknown: {error}")),
            None => Some("never was".to_owned()),
        }
    }

    fn stop(&mut self) {
        for child in &mut self.children {
            // Fails when the process has ended by itself.
            let _ = child.kill();
        }
    }
}

impl Drop for ProcessTeam {
    fn drop(&mut self) {
        self.stop();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Waits for the exit of a rank; kills a rank that takes too long.
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
        (Some(signal), _) => format!("was killed by {} {when} it was done", signals::name(signal)),
        (None, code) => format!("ended with status {} {when} it was done", code.unwrap_or(-1)),
    }
}

/// Starts every rank.
pub(super) fn start<T: Task>(run: &Run<T>) -> Result<StartedRanks<T::Found>, CommandFailure> {
    let make = || Ok(Traces { directory: Some(Directory::new()?), ranks: Vec::new() });
    // Inside the directory, whose lock shows that it is in use: rank 0 locks the path at which it listens.
    let place = |traces: &Traces| traces.directory.as_ref().map(|directory| directory.path().join("ranks"));
    let (traces, path) = guard(make, place)?;
    let path = path.unwrap_or_default();
    let mut team = ProcessTeam { children: Vec::new(), traces };
    let (sender, heard) = channel();
    for rank in 0..run.ranks() {
        let task = T::NAME.to_owned();
        let place = RunPlace { rank, directory: path.clone(), parent: getpid().as_raw_pid(), task };
        team.spawn(&place, run, sender.clone())?;
    }
    Ok(StartedRanks { heard, hands: Box::new(team), ranks: run.ranks() })
}

impl ProcessTeam {
    fn spawn<T: Task>(
        &mut self,
        place: &RunPlace,
        run: &Run<T>,
        sender: Sender<(usize, Heard<T::Found>)>,
    ) -> Result<(), CommandFailure> {
        let rank = place.rank;
        let program = std::env::current_exe().map_err(CommandFailure::doing("find this program"))?;
        let mut program = Command::new(program);
        // In a process group of its own: from a terminal a signal goes to the whole group of the command. A rank that such
        // a signal ended would look like a failed rank to the command, which may see the end of the rank first.
        program.arg("rank").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        program.envs(run.task.variables());
        let start = |traces: &mut Traces| {
            let child = program.spawn()?;
            traces.ranks.extend(pidfd_open(Pid::from_child(&child), PidfdFlags::empty()));
            Ok::<_, std::io::Error>(child)
        };
        // None: a signal ends this command.
        let Some(child) = self.traces.change(start) else { return Err(CommandFailure::Unread) };
        let mut child = child.map_err(CommandFailure::doing(format!("start rank {rank}")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        self.children.push(child);
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(CommandFailure::failed(format!("rank {rank} was started without its pipes")));
        };
        // A write to a rank that died fails; the end of the rank's output reports the death.
        let _ = output::json_to(&mut stdin, place).and_then(|()| output::json_to(&mut stdin, run));
        spawn(move || listen(rank, stdout, &sender)).map(drop)
    }
}

/// Passes on the reports of a rank until it ends.
fn listen<F: DeserializeOwned>(rank: usize, stdout: ChildStdout, sender: &Sender<(usize, Heard<F>)>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let said = serde_json::from_str(&line).unwrap_or_else(|error| Said::Failed {
            message: format!("wrote a line that is not a report ({error}): {line}"),
            echo: false,
        });
        if sender.send((rank, Heard::Said(said))).is_err() {
            return;
        }
    }
    let _ = sender.send((rank, Heard::Ended));
}

/// The process of a rank, which other commands start.
pub struct RankProcess {
    out: File,
    place: RunPlace,
    run: String,
}

impl RankProcess {
    /// Reads the rank's place and task from standard input, and ties this process to the process that started it.
    pub fn begin() -> Result<Self, CommandFailure> {
        let out = own_output().map_err(CommandFailure::doing("keep standard output to this rank"))?;
        let text = std::io::read_to_string(std::io::stdin()).map_err(CommandFailure::doing("read a rank's part"))?;
        let (place, run) = text.split_once('\n').unwrap_or_default();
        let place: RunPlace = serde_json::from_str(place).map_err(Self::misled)?;
        let parent = Pid::from_raw(place.parent).ok_or_else(|| CommandFailure::failed("a rank without a parent"))?;
        orphan::end_with(parent).map_err(CommandFailure::doing("tie this rank to its parent"))?;
        Ok(Self { out, run: run.to_owned(), place })
    }

    /// The name of the task.
    pub fn task(&self) -> &str {
        &self.place.task
    }

    /// Does the rank's part of a run of `T`.
    pub fn work<T: Task>(mut self) -> Result<(), CommandFailure> {
        let run: Run<T> = serde_json::from_str(&self.run).map_err(Self::misled)?;
        let RunPlace { rank, directory, .. } = self.place;
        let bootstrap = Local::connect(&directory, rank, run.ranks(), Instant::now() + MEET);
        run.work(rank, bootstrap.map_err(CommandFailure::from), &mut |said| output::json_to(&mut self.out, &said));
        Ok(())
    }

    /// The error that another program started this process.
    pub fn misled(why: impl std::fmt::Display) -> CommandFailure {
        CommandFailure::usage(format!("`rank` is started by `all-reduce` and its neighbours only: {why}"))
    }
}

/// Takes standard output for the rank's own lines. Output of libraries, as of NCCL's debug log, goes to standard error
/// from here on.
fn own_output() -> std::io::Result<File> {
    let out = fcntl_dupfd_cloexec(stdout(), 0)?;
    dup2_stdout(stderr())?;
    Ok(File::from(out))
}
