//! `symmetra launch`: runs any program as ranks, and ends them together.

mod relay;
mod start;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGTERM};

use crate::failure::{Failure, spawn};
use crate::nvshmem;
use crate::signals;
use relay::Relay;

/// Run a program as ranks on this host.
///
/// Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// as torchrun sets them, and SYMMETRA_SECRET, with which the library's TCP bootstrap tells
/// ranks from strangers. Lines of output are prefixed by their rank; standard input is
/// empty. SIGINT, SIGTERM and SIGHUP are forwarded, unless this command was started to ignore them, as by nohup. When a rank fails the others get SIGTERM
/// (after the grace period where a SIGINT was just forwarded), and SIGKILL after the grace period, and what it started itself SIGTERM;
/// its exit status (128 + the signal that killed it) is the launcher's. If the launcher is killed the ranks are too.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra launch -n 4 -- ./program --with arguments
  symmetra launch -n 2 -- python3 serve.py")]
pub(crate) struct Args {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,

    /// Seconds from SIGTERM to SIGKILL once a rank failed
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=86_400))]
    grace: u64,

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

/// What happens while ranks run.
enum Event {
    /// A rank ended and waits to be reaped.
    Ended { rank: usize, failed: bool },
    /// An output of a rank ended.
    Drained,
    /// This process got a signal.
    Signal(i32),
}

/// How long an output may be silent once all ranks have ended: children of ranks may hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);
/// Time between two looks at the outputs.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (sender, events) = channel();
    watch_signals(sender.clone())?;
    let mut ranks = Ranks { children: Vec::new(), events, grace: Duration::from_secs(args.grace), relays: Vec::new() };
    let world = start::World::new(args.ranks as usize)?;
    let variables = if args.nvshmem { nvshmem::variables() } else { Vec::new() };
    for rank in 0..args.ranks as usize {
        let mut child = world.start(rank, &args.program, args.no_prefix, &variables)?;
        let pid = Pid::from_child(&child);
        ranks.relays.extend(relay::start(rank, &mut child, &sender)?);
        ranks.children.push(Some(child));
        watch_end(rank, pid, sender.clone())?;
    }
    drop(sender);
    ranks.attend()
}

/// Turns signals into events, from here on.
fn watch_signals(sender: Sender<Event>) -> Result<(), Failure> {
    let mut signals = signals::watched()?;
    spawn(move || signals.forever().try_for_each(|signal| sender.send(Event::Signal(signal)))).map(drop)
}

/// Notices a rank's end without reaping the rank, so that its process number is not used again.
fn watch_end(rank: usize, pid: Pid, sender: Sender<Event>) -> Result<(), Failure> {
    let watch = move || {
        let ended = retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        let failed = !matches!(ended, Ok(Some(status)) if status.exit_status() == Some(0));
        let _ = sender.send(Event::Ended { rank, failed });
    };
    spawn(watch).map(drop)
}

/// The ranks that run.
struct Ranks {
    /// `None` once a rank is reaped.
    children: Vec<Option<Child>>,
    events: Receiver<Event>,
    grace: Duration,
    relays: Vec<Arc<Relay>>,
}

impl Ranks {
    /// Blocks until every rank ended; the first failure ends the others.
    fn attend(mut self) -> Result<(), Failure> {
        let mut failure = None;
        // The last forwarded signal that asks ranks to end.
        let mut told: Option<(i32, Instant)> = None;
        // The next signal for the ranks, and when to send it.
        let mut next: Option<(Signal, Instant)> = None;
        while self.children.iter().any(Option::is_some) {
            match self.event(next.map(|(_, at)| at)) {
                Some(Event::Signal(signal)) => {
                    if signal != SIGHUP {
                        told = Some((signal, Instant::now()));
                    }
                    Signal::from_named_raw(signal).into_iter().for_each(|signal| self.signal(signal));
                }
                Some(Event::Drained) => {}
                Some(Event::Ended { rank, failed }) => {
                    let Some(ended) = self.collect(rank, failed) else { continue };
                    if failure.is_none() {
                        // Ranks that were just told to end have the grace period first.
                        let signal = match told.filter(|(_, at)| at.elapsed() <= self.grace) {
                            Some((SIGTERM, _)) => Signal::KILL,
                            Some(_) => Signal::TERM,
                            None => {
                                self.signal(Signal::TERM);
                                Signal::KILL
                            }
                        };
                        next = Some((signal, Instant::now() + self.grace));
                        failure = Some(ended);
                    }
                }
                None => {
                    let signal = next.map_or(Signal::KILL, |(signal, _)| signal);
                    self.signal(signal);
                    next = (signal == Signal::TERM).then(|| (Signal::KILL, Instant::now() + self.grace));
                }
            }
        }
        self.drain();
        failure.map_or(Ok(()), Err)
    }

    /// The next event, or none when it is time for the next signal.
    fn event(&self, until: Option<Instant>) -> Option<Event> {
        match until {
            // Lasts: the signal watcher never hangs up.
            None => self.events.recv().ok(),
            Some(at) => self.events.recv_timeout(at.saturating_duration_since(Instant::now())).ok(),
        }
    }

    /// Sends a signal to the process group of every rank that runs.
    fn signal(&self, signal: Signal) {
        for child in self.children.iter().flatten() {
            // Fails when the rank has just ended.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }

    /// Reaps a rank and returns its failure, if it failed. The process group of a failed rank gets SIGTERM.
    fn collect(&mut self, rank: usize, failed: bool) -> Option<Failure> {
        let mut child = self.children.get_mut(rank)?.take()?;
        if failed {
            // Before the rank is reaped: until then its number is that of its group.
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
        }
        match child.wait() {
            Ok(status) => verdict(rank, status),
            Err(error) => Some(Failure::failed(format!("rank {rank} ended, nobody knows how: {error}"))),
        }
    }

    /// Waits until the ranks' last output is passed on, however slow its reader is.
    fn drain(&mut self) {
        let end = Instant::now();
        let passed_bytes: Vec<_> = self.relays.iter().map(|relay| relay.passed_bytes()).collect();
        while self.relays.iter().zip(&passed_bytes).any(|(relay, before)| relay.lags(end, *before, DRAIN)) {
            if let Ok(Event::Signal(_)) = self.events.recv_timeout(LOOK) {
                return;
            }
        }
    }
}

impl Drop for Ranks {
    /// Kills the ranks that run if not all could be started.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for child in self.children.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}

fn verdict(rank: usize, status: ExitStatus) -> Option<Failure> {
    let (message, code) = match (status.code(), status.signal()) {
        (Some(0), _) => return None,
        (Some(code), _) => (format!("rank {rank} ended with status {code}"), code),
        (None, Some(signal)) => (format!("rank {rank} was killed by signal {signal}"), 128 + signal),
        (None, None) => (format!("rank {rank} ended"), 1),
    };
    Some(Failure::Program { message, code: u8::try_from(code).unwrap_or(1) })
}
