//! Waits for sockets, with a deadline.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The longest limit of a wait. Deadlines with it do not overflow.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// The deadline of a wait of at most `limit` that begins now. Longer limits count as [`LONGEST`].
pub fn until(limit: Duration) -> Instant {
    Instant::now() + limit.min(LONGEST)
}

/// A check that returns an error if waiting has become useless.
pub(crate) type Heeded = Box<dyn Fn() -> Result<()> + Send>;

/// The conditions that end a wait for ranks.
pub(super) struct WaitLimit {
    pub(super) deadline: Instant,
    pub(super) heeded: Option<Heeded>,
}

impl From<Instant> for WaitLimit {
    fn from(deadline: Instant) -> Self {
        Self { deadline, heeded: None }
    }
}

impl WaitLimit {
    /// How often a wait is interrupted to run the check.
    const LOOK: Duration = Duration::from_millis(20);

    /// The error that ends the wait, if there is one.
    pub(super) fn ask(&self) -> Result<()> {
        self.heeded.as_ref().map_or(Ok(()), |heeded| heeded())
    }

    /// The time of the next check of a wait that begins now.
    pub(super) fn next(&self) -> Instant {
        self.heeded.as_ref().map_or(self.deadline, |_| self.deadline.min(Instant::now() + Self::LOOK))
    }
}

/// The schedule of the warnings about a long wait: after 5 seconds, and then every 30 seconds.
#[derive(Debug)]
pub(crate) struct Patience {
    start: Instant,
    ends: Instant,
}

impl Patience {
    const FIRST: Duration = Duration::from_secs(5);
    const AGAIN: Duration = Duration::from_secs(30);

    /// The schedule of a wait that begins at `start`.
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, ends: start + Self::FIRST }
    }

    /// The time of the next warning.
    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// The duration of the wait, if a warning is due now.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<Duration> {
        (now >= self.ends).then(|| {
            self.ends = now + Self::AGAIN;
            now - self.start
        })
    }
}

/// Blocks until one of `fds` is ready or `deadline` has passed, and returns the events of each.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<Vec<PollFlags>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok(); // none: beyond the range of the clock
        match poll(fds, timeout.as_ref()) {
            Ok(_) => return Ok(fds.iter().map(PollFd::revents).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("poll", &errno.into())),
        }
    }
}
