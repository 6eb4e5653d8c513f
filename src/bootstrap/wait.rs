//! Blocking until something can be read or written, never past a deadline.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Blocks until one of `fds` is ready or `deadline` passed, and returns what is ready of each.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<Vec<PollFlags>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok(); // none: further away than the clock counts
        match poll(fds, timeout.as_ref()) {
            Ok(_) => return Ok(fds.iter().map(PollFd::revents).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("poll", &errno.into())),
        }
    }
}
