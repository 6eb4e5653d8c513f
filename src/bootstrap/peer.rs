//! The process at the other end of a unix socket: its user, and whether it lives.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

/// Checks that the other end belongs to this user; else returns a description.
pub(super) fn check_user(socket: BorrowedFd<'_>) -> Result<(), String> {
    let peer = credentials(socket).map_err(|errno| format!("its user is unknown: {errno}"))?;
    let (ours, theirs) = (geteuid().as_raw(), peer.uid);
    if ours != theirs {
        return Err(format!("it runs as user {theirs}, this rank as user {ours}"));
    }
    Ok(())
}

/// The process of a rank, in a form that poll can watch. A socket does not report the end of a process while a forked
/// child has a copy.
#[derive(Clone)]
pub(super) struct Life(Arc<OwnedFd>);

impl Life {
    /// The process that made the connection of the other end or listened for it. None if the system cannot name the
    /// process: on Linux below 6.5 with another PID namespace, or in a sandbox without pidfds.
    ///
    /// # Errors
    /// [`Errno::SRCH`] if the process has ended.
    pub(super) fn of_peer(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let fd = match peer_pidfd(socket) {
            Err(Errno::NOPROTOOPT | Errno::INVAL | Errno::OPNOTSUPP) => match Pid::from_raw(credentials(socket)?.pid) {
                None => return Ok(None),
                Some(pid) => pidfd_open(pid, PidfdFlags::empty()),
            },
            fd => fd,
        };
        match fd {
            Ok(fd) => Ok(Some(Self(Arc::new(fd)))),
            Err(Errno::NODATA) => Err(Errno::SRCH),
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The descriptor to poll: it is ready when the process has ended.
    pub(super) fn interest(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}

/// Process, user and group of the other end. A process of another PID namespace has the id 0, which rustix's type
/// cannot represent.
fn credentials(socket: BorrowedFd<'_>) -> Result<libc::ucred, Errno> {
    option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: 0, gid: 0 })
}

/// A descriptor of the other end's process, close-on-exec as all pidfds are.
fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let fd: c_int = option(socket, libc::SO_PEERPIDFD, -1)?;
    // SAFETY: the system made this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain integers: every bit pattern is a value.
trait Plain: Copy {}
impl Plain for libc::ucred {}
impl Plain for c_int {}

/// The value of a socket's option.
fn option<T: Plain>(socket: BorrowedFd<'_>, option: c_int, mut value: T) -> Result<T, Errno> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the system writes at most `bytes` bytes to `value`, and any bytes are a `T`.
    let code = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut bytes)
    };
    match code {
        0 if bytes as usize == size_of::<T>() => Ok(value),
        0 => Err(Errno::INVAL),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
