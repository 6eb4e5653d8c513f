//! Detects the death of a rank between exchanges.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::{fcntl_dupfd_cloexec, write};

use super::mesh::Mesh;
use super::peer::Life;
use super::wait::wait;
use crate::error::{Error, Result};
use crate::fork::Maker;

/// How often the thread wakes to run the check.
const LOOK: Duration = Duration::from_secs(1);

/// A thread that sleeps until a rank of a mesh disconnects, and runs a check once a second. It never reads from the
/// sockets.
pub struct Monitor {
    maker: Maker,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Calls `on_lost` once with each rank whose process dies or whose mesh is dropped, within milliseconds, and `look`
    /// once a second, on the monitor's thread. If a child that the rank forked keeps its sockets open, its death is
    /// detected where the system exposes its process: on Linux 6.5 or later, else within one PID namespace. Reports no
    /// rank after this rank dropped its own mesh.
    pub fn start(
        mesh: &Mesh,
        mut on_lost: impl FnMut(usize) + Send + 'static,
        mut look: impl FnMut() + Send + 'static,
    ) -> Result<Self> {
        let system = |doing: &'static str| move |errno: rustix::io::Errno| Error::system(doing, &errno.into());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system("eventfd"))?;
        let duplicate = |fd| fcntl_dupfd_cloexec(fd, 0).map_err(system("duplicate a socket"));
        let woken = duplicate(wake.as_fd())?;
        let watched = mesh
            .connections()
            .map(|(rank, socket, life)| Ok(Watched { rank, socket: duplicate(socket)?, life: life.cloned() }));
        let mut watched = watched.collect::<Result<Vec<_>>>()?;
        let closing = mesh.closing();
        let watch = move || {
            while let Ok(lost) = next_lost(&woken, &mut watched, &mut look) {
                if lost.is_empty() || closing.load(Ordering::Acquire) {
                    return;
                }
                lost.into_iter().for_each(&mut on_lost);
            }
        };
        let thread = std::thread::Builder::new().name("symmetra-monitor".into()).spawn(watch);
        let thread = thread.map_err(|error| Error::system("start the monitor's thread", &error))?;
        Ok(Self { maker: Maker::this(), wake, thread: Some(thread) })
    }

    /// Ends the thread and waits for it, including a running `on_lost`. Does not wait if `on_lost` itself calls this.
    pub(crate) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A forked child has no such thread, and would wake the thread of its parent.
        if !self.maker.is_here() {
            std::mem::forget(thread);
            return;
        }
        if let Err(errno) = write(&self.wake, &1u64.to_ne_bytes()) {
            crate::log!(ERROR, "the monitor's thread cannot be woken: {errno}");
            return;
        }
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            crate::log!(ERROR, "the monitor's thread panicked");
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A rank's socket and, if the system lets this process watch it, the rank's process.
struct Watched {
    rank: usize,
    socket: OwnedFd,
    life: Option<Life>,
}

/// Sleeps until ranks disconnect or end, and removes them from `watched`. Runs `look` meanwhile. Returns no rank if the
/// monitor is to stop.
fn next_lost(woken: &OwnedFd, watched: &mut Vec<Watched>, look: &mut impl FnMut()) -> Result<Vec<usize>> {
    let mut fds = vec![PollFd::new(woken, PollFlags::IN)];
    for Watched { socket, life, .. } in &*watched {
        // No events requested: poll still reports hang-ups and errors.
        fds.push(PollFd::new(socket, PollFlags::empty()));
        fds.extend(life.as_ref().map(Life::interest));
    }
    let ready = loop {
        let ready = wait(&mut fds, Instant::now() + LOOK)?;
        if ready.iter().any(|flags| !flags.is_empty()) {
            break ready;
        }
        look();
    };
    let (stop, ready) = ready.split_first().unwrap_or((&PollFlags::IN, &[]));
    let mut lost = Vec::new();
    if stop.is_empty() {
        let mut ready = ready.iter();
        watched.retain(|Watched { rank, life, .. }| {
            // Takes all flags of a rank, so that the flags of the next rank are aligned.
            let keep =
                ready.by_ref().take(1 + usize::from(life.is_some())).filter(|flags| !flags.is_empty()).count() == 0;
            if !keep {
                lost.push(*rank);
            }
            keep
        });
    }
    Ok(lost)
}
