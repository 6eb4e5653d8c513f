//! The address at which rank 0 listens and to which the other ranks connect.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, getpeername, getsockname, listen,
    socket_with,
};

use super::peer::check_user;
use super::shown::MeetingPlace;
use super::wait::wait;
use crate::error::{Error, Result};

/// Connections the system keeps for a listener while its rank is busy.
pub(super) const BACKLOG: i32 = 1024;
/// How long one attempt to reach one address may take.
const DIAL: Duration = Duration::from_secs(2);
/// Pause before the next attempt at a unix socket whose queue is full.
const QUEUED: Duration = Duration::from_millis(2);
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Where rank 0 listens.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// Any of these addresses.
    Tcp(Vec<SocketAddr>),
    /// A unix socket. Both sides check that the other side runs as the same user.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "{}", path.display()),
            Self::Tcp(addresses) => {
                let texts: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
                out.write_str(&texts.join(" or "))
            }
        }
    }
}

/// Why an attempt to join failed.
pub(super) enum Setback {
    /// Rank 0 may not be there yet: trying again may help.
    Again(String),
    /// Trying again does not help.
    Final(Error),
}

impl From<Error> for Setback {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl Endpoint {
    /// The endpoint in words that are equal on all ranks: rank 0 may listen at other addresses of its host.
    pub(super) fn place(&self) -> MeetingPlace {
        match self {
            Self::Unix(path) => MeetingPlace { words: path.display().to_string(), open_to_hosts: false },
            Self::Tcp(addresses) => MeetingPlace {
                words: format!("port {}", addresses.first().map_or(0, SocketAddr::port)),
                open_to_hosts: !addresses.iter().all(|address| address.ip().is_loopback()),
            },
        }
    }

    /// A connected, non-blocking socket.
    pub(super) fn dial(&self, deadline: Instant) -> Result<OwnedFd, Setback> {
        match self {
            Self::Unix(path) => dial_unix(path, deadline),
            Self::Tcp(addresses) => {
                let mut last = Setback::Again("no address".to_owned());
                for address in addresses {
                    match dial_tcp(address, deadline.min(Instant::now() + DIAL)) {
                        Ok(socket) => return Ok(socket),
                        Err(setback) => last = setback,
                    }
                }
                Err(last)
            }
        }
    }

    /// The next waiting connection of `listener`. None if no connection waits, or if it belongs to another user.
    pub(super) fn accept(&self, listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
        let socket = match accept_with(listener, FLAGS) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        match self {
            Self::Tcp(_) => set_tcp_nodelay(&socket, true).or_else(ignore_gone)?,
            Self::Unix(_) => {
                if let Err(words) = check_user(socket.as_fd()) {
                    crate::log!(WARN, "turned away a connection to {self}: {words}");
                    return Ok(None);
                }
            }
        }
        Ok(Some(socket))
    }
}

/// Ignores that a connection was closed while it waited; the first read detects this.
fn ignore_gone(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::INVAL { Ok(()) } else { Err(errno) }
}

/// A non-blocking listener at a TCP address.
pub(super) fn listen_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Makes a non-blocking stream socket.
pub(super) fn stream(family: AddressFamily) -> Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, FLAGS, None).map_err(|errno| Error::system("socket", &errno.into()))
}

/// The address of a unix socket, which the system limits to 107 bytes.
pub(super) fn unix_address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|_| {
        let limit =
            "a unix socket's path must be at most 107 bytes: use a shorter directory (TMPDIR for temporary ones)";
        Error::invalid("socket path", path.display(), limit)
    })
}

fn dial_unix(path: &Path, deadline: Instant) -> Result<OwnedFd, Setback> {
    let socket = stream(AddressFamily::UNIX)?;
    let address = unix_address(path)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            // The queue of the listener is full: it is alive and will accept.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(QUEUED),
            Err(errno @ (Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN)) => {
                return Err(Setback::Again(errno.to_string()));
            }
            Err(errno) => {
                return Err(Error::system(format_args!("connect to {}", path.display()), &errno.into()).into());
            }
        }
    }
    check_user(socket.as_fd()).map_err(|words| Error::bootstrap(format!("{}: {words}", path.display())))?;
    Ok(socket)
}

fn dial_tcp(address: &SocketAddr, deadline: Instant) -> Result<OwnedFd, Setback> {
    let again = |errno: Errno| Setback::Again(errno.to_string());
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // On a machine without IPv6 creating the socket fails; another address may work.
    let socket = stream(family).map_err(|error| Setback::Again(error.to_string()))?;
    match connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let ready = wait(&mut [PollFd::new(&socket, PollFlags::OUT)], deadline)?;
            if ready.iter().all(|flags| flags.is_empty()) {
                return Err(Setback::Again("no answer".to_owned()));
            }
            socket_error(&socket).and_then(|outcome| outcome).map_err(again)?;
        }
        Err(errno) => return Err(again(errno)),
    }
    // Connecting to a free port of this machine can connect the socket to itself.
    let ends = (getsockname(&socket).map_err(again)?, getpeername(&socket).map_err(again)?);
    if Some(ends.0) == ends.1 {
        return Err(Setback::Again(Errno::CONNREFUSED.to_string()));
    }
    set_tcp_nodelay(&socket, true).map_err(again)?;
    Ok(socket)
}
