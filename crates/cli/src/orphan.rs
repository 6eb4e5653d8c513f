//! Processes that must not outlive the one that started them.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has the system end this process when the thread that started it ends. `parent` is that
/// thread's process: it may be gone before the system was asked. Safe after a fork: makes
/// system calls and nothing else.
pub(crate) fn end_with(parent: Pid) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(Errno::SRCH),
    }
}
