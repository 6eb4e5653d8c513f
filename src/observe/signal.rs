//! Records of all groups of this process, at a signal.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::retry_on_intr;

use crate::error::{Error, Result};
use crate::group::dump_all;

/// The descriptor that the handler writes to. It stays open until the process ends.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// The thread that writes files, and the folder.
static RECORDER: OnceCell<Mutex<PathBuf>> = OnceCell::new();

/// Signals that a handler cannot take, or whose handler must not return.
const REFUSED: [c_int; 6] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// From here on every signal of this number makes a thread of the library write the histories of all ranks of this process
/// into `folder`, as [`dump_all`](super::dump_all) does. The signal no longer has its former effect. A later call replaces the
/// folder for all signals. A file that cannot be written is a warning in the log. The library installs no handler without
/// this call.
///
/// # Errors
/// [`Error::InvalidArgument`] for a number that is no signal, and for SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL and SIGFPE;
/// [`Error::System`] without a descriptor or a thread.
pub fn dump_on(signal: i32, folder: impl Into<PathBuf>) -> Result<()> {
    if !(1..=libc::SIGRTMAX()).contains(&signal) || REFUSED.contains(&signal) {
        let limit = format!("it must be 1 to {}, and not SIGKILL, SIGSTOP or a fault", libc::SIGRTMAX());
        return Err(Error::invalid("the signal", signal, limit));
    }
    let folder = folder.into();
    let first = Mutex::new(folder.clone());
    let kept = RECORDER.get_or_try_init(|| start().map(|()| first))?;
    *kept.lock() = folder;
    handle(signal)
}

/// Starts the thread that waits for the handler.
fn start() -> Result<()> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| Error::system("eventfd", &error.into()))?;
    let number = wake.as_raw_fd();
    let thread = std::thread::Builder::new().name("symmetra-record".to_owned());
    thread.spawn(move || attend(&wake)).map_err(|error| Error::system("start a thread", &error))?;
    WAKE.store(number, Ordering::Release);
    Ok(())
}

/// Writes files each time the handler has run.
fn attend(wake: &OwnedFd) {
    let mut count = [0; 8];
    loop {
        match retry_on_intr(|| rustix::io::read(wake, &mut count)) {
            Ok(_) => {}
            Err(error) => {
                crate::log!(WARN, "cannot read an event: {error}");
                std::thread::sleep(Duration::from_secs(1));
                continue;
            }
        }
        let Some(folder) = RECORDER.get().map(|folder| folder.lock().clone()) else { continue };
        match dump_all(&folder) {
            Ok(files) => crate::log!(INFO, "{} histories are recorded in {}", files.len(), folder.display()),
            Err(error) => crate::log!(WARN, "the histories are not recorded: {error}"),
        }
    }
}

/// Notifies the thread. A handler may write to an event, and a system call of rustix leaves the thread's error number as it was.
extern "C" fn arrived(_: c_int) {
    // SAFETY: the descriptor is open until the process ends, because its thread never drops it.
    let wake = unsafe { BorrowedFd::borrow_raw(WAKE.load(Ordering::Acquire)) };
    // Fails if the thread has 2^64 - 2 signals to attend to.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

fn handle(signal: c_int) -> Result<()> {
    let handler: extern "C" fn(c_int) = arrived;
    // SAFETY: an all-zero action is valid: it blocks no signal and has no flag.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `arrived` calls only functions that a handler may call, and is never unloaded before the process ends.
    let code = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    match code {
        0 => Ok(()),
        _ => Err(Error::system("handle a signal", &std::io::Error::last_os_error())),
    }
}
