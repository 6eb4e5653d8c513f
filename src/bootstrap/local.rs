//! Ranks that meet at a unix socket in a directory of their user.

use std::fmt;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, open, renameat, unlinkat};
use rustix::io::Errno;
use rustix::net::listen;
use rustix::process::geteuid;

use super::all_gather::Bootstrap;
use super::endpoint::{BACKLOG, Endpoint, unix_address};
use super::frame::check_rank;
use super::handshake::NO_SECRET;
use super::star::Star;
use super::wait::{Heeded, WaitLimit};
use crate::error::{Error, Result};
use crate::fork::Maker;

/// The socket's name in the directory.
const SOCKET: &str = "rank0.sock";
/// Its name until rank 0 listens at it.
const UNFINISHED: &str = "rank0.new";

/// Ranks of one host that meet in a directory: processes or threads of the same user.
///
/// Rank 0 listens at a unix socket in the directory, the others connect. Only processes of one user can join: the
/// directory has mode 0700, and both sides of a connection check the user of the other side. Rank 0 replaces a socket
/// that a crash left, and removes its socket when it is dropped.
pub struct Local {
    // Closed before its name is removed.
    star: Star,
    _name: Option<Name>,
}

/// The directory, locked by rank 0 as long as its socket exists.
struct Name {
    maker: Maker,
    directory: OwnedFd,
}

impl Local {
    /// Blocks until every rank has joined or `deadline` has passed. Ranks may start in any order.
    ///
    /// `directory` is the same on every rank and made with mode 0700 if it is missing; its parent
    /// must exist. Its path must be at most 96 bytes long. `rank` is in `0..world_size`,
    /// `world_size` in 1..=256 and the same on every rank.
    ///
    /// # Errors
    /// * [`Error::InvalidArgument`]: a rank or world size out of its range, a path too long, or a
    ///   directory that belongs to another user, is open to others, or is no directory;
    /// * [`Error::Bootstrap`]: rank 0 refused this rank (claimed before, another world size), or a
    ///   rank 0 listens there already;
    /// * [`Error::Timeout`]: the deadline passed, on this rank or on another rank that had joined; the error names the
    ///   missing ranks, or rank 0 if rank 0 did not report them;
    /// * [`Error::PeerLost`]: a rank joined and died;
    /// * [`Error::System`]: the directory cannot be made or opened.
    pub fn connect(directory: impl AsRef<Path>, rank: usize, world_size: usize, deadline: Instant) -> Result<Self> {
        Self::connect_heeding(directory, rank, world_size, deadline, None)
    }

    /// As [`connect`](Self::connect). Until all ranks have joined, `heeded` is called periodically, and its error ends
    /// the wait.
    pub(crate) fn connect_heeding(
        directory: impl AsRef<Path>,
        rank: usize,
        world_size: usize,
        deadline: Instant,
        heeded: Option<Heeded>,
    ) -> Result<Self> {
        check_rank(rank, world_size)?;
        let path = directory.as_ref();
        unix_address(&path.join(SOCKET))?;
        let directory = private_directory(path)?;
        let endpoint = Endpoint::Unix(path.join(SOCKET));
        let secret = NO_SECRET; // the user is the proof
        if world_size == 1 {
            return Ok(Self { star: Star::alone(), _name: None });
        }
        let limit = WaitLimit { deadline, heeded };
        if rank != 0 {
            return Ok(Self { star: Star::join(&endpoint, secret, rank, world_size, limit)?, _name: None });
        }
        let (name, listener) = publish(directory, path)?;
        let star = Star::listen(endpoint, listener, secret, world_size, limit)?;
        Ok(Self { star, _name: Some(name) })
    }
}

impl Bootstrap for Local {
    fn rank(&self) -> usize {
        self.star.rank()
    }

    fn world_size(&self) -> usize {
        self.star.world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.star.all_gather(bytes, deadline)
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Local(rank {} of {})", self.rank(), self.world_size())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        // While this rank holds the lock, the name belongs to it. Closing the lock alone would not unlock at once: a
        // child that is being started may have a duplicate.
        let removed = unlinkat(&self.directory, SOCKET, AtFlags::empty());
        let unlocked = flock(&self.directory, FlockOperation::Unlock);
        if let Err(errno) = removed.and(unlocked) {
            crate::log!(DEBUG, "{SOCKET} was not removed: {errno}");
        }
    }
}

/// Opens the directory, makes it if it is missing, and checks that only this user can enter it.
fn private_directory(path: &Path) -> Result<OwnedFd> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Error::system(format_args!("make the directory {}", path.display()), &error));
        }
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match open(path, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(Error::invalid("directory", path.display(), "it must be a directory, not a file or a link"));
        }
        Err(errno) => return Err(Error::system(format_args!("open {}", path.display()), &errno.into())),
    };
    let stat =
        fstat(&directory).map_err(|errno| Error::system(format_args!("stat {}", path.display()), &errno.into()))?;
    let (user, mode) = (geteuid().as_raw(), stat.st_mode & 0o777);
    if stat.st_uid != user {
        let value = format!("{}, owned by user {}", path.display(), stat.st_uid);
        return Err(Error::invalid("directory", value, format!("it must belong to user {user}, who runs this rank")));
    }
    if mode != 0o700 {
        let value = format!("{}, mode {mode:04o}", path.display());
        return Err(Error::invalid("directory", value, "it must be open to its owner alone: mode 0700"));
    }
    Ok(directory)
}

/// Listens, then gives the socket its name, in place of a socket that a crash left.
fn publish(directory: OwnedFd, path: &Path) -> Result<(Name, OwnedFd)> {
    let system = |doing: &'static str| {
        move |errno: Errno| Error::system(format_args!("{doing} in {}", path.display()), &errno.into())
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(Error::bootstrap(format!(
                "rank 0 was claimed before: one listens in {} already",
                path.display()
            )));
        }
        Err(errno) => return Err(system("lock")(errno)),
    }
    match unlinkat(&directory, UNFINISHED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(system("remove a stale socket")(errno)),
    }
    let bound = UnixListener::bind(path.join(UNFINISHED)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        listen(&listener, BACKLOG)?;
        Ok(listener)
    });
    let listener = bound.map_err(|error| Error::system(format_args!("listen in {}", path.display()), &error))?;
    renameat(&directory, UNFINISHED, &directory, SOCKET).map_err(system("name the socket"))?;
    Ok((Name { maker: Maker::this(), directory }, listener.into()))
}
