//! Processes that must not outlive the process that started them.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Asks the system to end this process when the thread that started it ends. `parent` is that thread's process;
/// fails if the parent is gone. Safe after a fork: makes system calls only.
pub fn end_with(parent: Pid) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH) }
}
