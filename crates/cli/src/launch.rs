//! `symmetra launch`: runs any program as ranks, and ends them together.

mod relay;
mod reports;
mod start;
mod verdict;

use std::ffi::OsString;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};

use harness::failure::{CommandFailure, spawn};
use harness::signals;
use harness::{nvshmem, output};
use relay::Relay;
use reports::Reports;
use verdict::LaunchVerdict;

/// Run a program as ranks on this host.
///
/// Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// as torchrun sets them, and SYMMETRA_SECRET, with which the library's TCP bootstrap distinguishes
/// ranks from strangers. Lines of output are prefixed by their rank; standard input is empty.
///
/// When a rank fails, the others get SIGTERM, and SIGKILL after the grace period; processes that the failed rank
/// started get SIGTERM. The message names the rank that failed first and all other ranks that failed; the exit status
/// of the first rank (128 + the signal that killed it) is the launcher's.
///
/// A rank whose library saw another rank fail did not fail first: the launcher gives the others 2 seconds to end by
/// themselves. Where SYMMETRA_DUMP names a folder for records of calls, the others have 1 second to write their records
/// before SIGTERM.
///
/// SIGINT, SIGTERM and SIGHUP are forwarded, unless this command was started to ignore them, as by nohup. Ranks that
/// have not ended after the grace period get SIGTERM after a SIGINT, and SIGKILL after a SIGTERM. A second SIGINT kills
/// them at once. If the launcher is killed, the ranks are too.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra launch -n 4 -- ./program --with arguments
  symmetra launch -n 2 -- python3 serve.py")]
pub(crate) struct Args {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,

    /// Seconds from SIGTERM to SIGKILL, and from a forwarded SIGINT to SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=86_400))]
    grace: u64,

    /// Let the other ranks go on when a rank fails; the exit status is that of the rank that failed first
    #[arg(long)]
    keep_others: bool,

    /// Give ranks this command's own output instead of prefixed lines
    #[arg(long)]
    no_prefix: bool,

    /// Give ranks the variables with which NVSHMEM works on one host without multicast and without a network adapter,
    /// where they are unset
    #[arg(long)]
    nvshmem: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// An event while ranks run.
enum LaunchEvent {
    /// A rank ended and waits to be reaped.
    Ended { rank: usize, failed: bool },
    /// An output of a rank ended, or could not be passed on.
    Drained(Result<(), CommandFailure>),
    /// This process got a signal.
    Signal(i32),
}

/// How long ranks have to end by themselves while every rank that failed did so because another rank failed.
const DOUBT: Duration = Duration::from_secs(2);
/// How long ranks have to write the records of their calls after a rank failed.
const RECORDS: Duration = Duration::from_secs(1);
/// Signals that come within this time are one: some programs signal a process and then its group.
const ONCE: Duration = Duration::from_millis(100);
/// How long an output may be silent once all ranks have ended: children of ranks may hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);
/// Time between two checks of the outputs.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let (sender, events) = channel();
    watch_signals(sender.clone())?;
    let mut ranks = RunningRanks::new(args, events);
    let world = start::LaunchedWorld::new(args.ranks as usize)?;
    let variables = if args.nvshmem { nvshmem::variables() } else { Vec::new() };
    for rank in 0..args.ranks as usize {
        let report = ranks.reports.variable(rank);
        let mut child = world.start(rank, &args.program, args.no_prefix, |command| {
            command.envs(variables.iter().copied()).envs(report);
        })?;
        let pid = Pid::from_child(&child);
        ranks.relays.extend(relay::start(rank, &mut child, &sender)?);
        ranks.children.push(Some(child));
        watch_end(rank, pid, sender.clone())?;
    }
    drop(sender);
    ranks.attend()
}

/// Turns signals into events, from here on.
fn watch_signals(sender: Sender<LaunchEvent>) -> Result<(), CommandFailure> {
    let mut signals = signals::watched()?;
    spawn(move || signals.forever().try_for_each(|signal| sender.send(LaunchEvent::Signal(signal)))).map(drop)
}

/// Notices a rank's end without reaping the rank, so that its process number is not used again.
fn watch_end(rank: usize, pid: Pid, sender: Sender<LaunchEvent>) -> Result<(), CommandFailure> {
    let watch = move || {
        let ended = retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        let failed = !matches!(ended, Ok(Some(status)) if status.exit_status() == Some(0));
        let _ = sender.send(LaunchEvent::Ended { rank, failed });
    };
    spawn(watch).map(drop)
}

/// The ranks that run.
struct RunningRanks {
    /// `None` after a rank is reaped.
    children: Vec<Option<Child>>,
    events: Receiver<LaunchEvent>,
    grace: Duration,
    keep_others: bool,
    relays: Vec<Arc<Relay>>,
    reports: Reports,
    verdict: LaunchVerdict,
    /// The next signal for the ranks, and when to send it.
    next: Option<(Signal, Instant)>,
    /// Whether the library of the ranks writes records of calls after a failure.
    records: bool,
    /// Whether the next signal only waits for the rank that failed first, or for records.
    in_doubt: bool,
    /// When the first SIGINT came.
    interrupted: Option<Instant>,
    /// The reason other than a failed rank for which the ranks are ended: output that cannot be written, or a second
    /// SIGINT.
    failure: Option<CommandFailure>,
}

impl RunningRanks {
    fn new(args: &Args, events: Receiver<LaunchEvent>) -> Self {
        Self {
            children: Vec::new(),
            events,
            grace: Duration::from_secs(args.grace),
            keep_others: args.keep_others,
            relays: Vec::new(),
            reports: Reports::new(args.ranks as usize),
            verdict: LaunchVerdict::default(),
            next: None,
            records: std::env::var_os("SYMMETRA_DUMP").is_some_and(|folder| !folder.is_empty()),
            in_doubt: false,
            interrupted: None,
            failure: None,
        }
    }

    /// Blocks until every rank ended.
    fn attend(mut self) -> Result<(), CommandFailure> {
        while self.children.iter().any(Option::is_some) {
            match self.event(self.next.map(|(_, at)| at)) {
                Some(LaunchEvent::Signal(signal)) => self.forward(signal),
                Some(LaunchEvent::Drained(passed)) => self.passed(passed),
                Some(LaunchEvent::Ended { rank, failed }) => self.ended(rank, failed),
                None => {
                    let signal = self.next.map_or(Signal::KILL, |(signal, _)| signal);
                    self.signal(signal);
                    let more = signal == Signal::TERM;
                    (self.next, self.in_doubt) = (more.then(|| (Signal::KILL, Instant::now() + self.grace)), false);
                }
            }
        }
        self.drain();
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => std::mem::take(&mut self.verdict).failure().map_or(Ok(()), Err),
        }
    }

    /// The next event, or none when it is time for the next signal.
    fn event(&self, until: Option<Instant>) -> Option<LaunchEvent> {
        match until {
            // Never fails, because the signal watcher never closes the channel.
            None => self.events.recv().ok(),
            Some(at) => self.events.recv_timeout(at.saturating_duration_since(Instant::now())).ok(),
        }
    }

    /// Sends a signal to the process group of every rank that runs.
    fn signal(&mut self, signal: Signal) {
        self.verdict.send(signal.as_raw());
        for child in self.children.iter().flatten() {
            // Fails when the rank has just ended.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }

    /// Passes a signal of this command on to the ranks.
    fn forward(&mut self, signal: i32) {
        let Some(named) = Signal::from_named_raw(signal) else { return };
        let now = Instant::now();
        if signal == SIGINT && self.interrupted.is_some_and(|first| first + ONCE <= now) {
            if !self.verdict.any() {
                let message = "a second SIGINT killed the ranks".to_owned();
                self.failure.get_or_insert(CommandFailure::Program { message, code: 128 + SIGINT as u8 });
            }
            self.signal(Signal::KILL);
            return;
        }
        self.signal(named);
        let step = match signal {
            SIGINT => {
                self.interrupted.get_or_insert(now);
                Signal::TERM
            }
            SIGTERM => Signal::KILL,
            _ => return,
        };
        // A SIGKILL that is due stays due; a SIGTERM that is due has just been sent, or comes later than it would have.
        if self.next.is_none_or(|(due, _)| due != Signal::KILL) {
            (self.next, self.in_doubt) = (Some((step, now + self.grace)), false);
        }
    }

    /// Asks the ranks to end, unless they have been asked.
    fn stop(&mut self) {
        if self.next.is_none() || self.in_doubt {
            self.signal(Signal::TERM);
            (self.next, self.in_doubt) = (Some((Signal::KILL, Instant::now() + self.grace)), false);
        }
    }

    /// Takes note that an output ended. Output that cannot be written ends the ranks.
    fn passed(&mut self, passed: Result<(), CommandFailure>) {
        let Err(failure) = passed else { return };
        if !self.verdict.any() {
            self.failure.get_or_insert(failure);
        }
        self.stop();
    }

    /// Reaps a rank. If the rank failed, the others are asked to end, and the process group of the rank gets SIGTERM.
    fn ended(&mut self, rank: usize, failed: bool) {
        let Some(mut child) = self.children.get_mut(rank).and_then(Option::take) else { return };
        if failed {
            // Before the rank is reaped: until then its number is that of its group.
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
        }
        let follows = self.reports.follows(rank);
        let Some(words) = self.verdict.end(rank, child.wait(), follows) else { return };
        if self.keep_others {
            if self.children.iter().any(Option::is_some) {
                self.passed(output::note(format_args!("{words}; the other ranks go on")));
            }
            return;
        }
        let patience = match (self.verdict.has_cause(), self.records) {
            (true, false) => return self.stop(),
            (true, true) => RECORDS,
            (false, _) => DOUBT,
        };
        let due = Instant::now() + patience;
        if self.next.is_none_or(|(_, at)| self.in_doubt && due < at) {
            (self.next, self.in_doubt) = (Some((Signal::TERM, due)), true);
        }
    }

    /// Waits until the ranks' last output is passed on, however slow its reader is.
    fn drain(&mut self) {
        let end = Instant::now();
        let passed_bytes: Vec<_> = self.relays.iter().map(|relay| relay.passed_bytes()).collect();
        while self.relays.iter().zip(&passed_bytes).any(|(relay, before)| relay.lags(end, *before, DRAIN)) {
            match self.events.recv_timeout(LOOK) {
                Ok(LaunchEvent::Signal(_)) => return,
                Ok(LaunchEvent::Drained(passed)) => self.passed(passed),
                _ => {}
            }
        }
        while let Ok(event) = self.events.try_recv() {
            if let LaunchEvent::Drained(passed) = event {
                self.passed(passed);
            }
        }
    }
}

impl Drop for RunningRanks {
    /// Kills the ranks that run if not all could be started.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for child in self.children.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}
