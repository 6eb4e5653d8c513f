//! A directory for sockets that does not outlive its process for long.
//!
//! The directory is locked while its process lives. When the process ends, even by a kill, the system drops the lock.
//! The next rank of the same user that makes such a directory removes unlocked directories that contain only sockets.
//! Abstract sockets would leave no files, but they belong to a network namespace: ranks in containers of one host that
//! share only a directory for temporary files could not meet.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::handshake::random;
use crate::error::{Error, Result};
use crate::fork::Maker;

/// The prefix of the names. Eight hexadecimal digits follow. Other names are never removed.
const PREFIX: &str = "symmetra-ranks-";
const DIGITS: usize = 8;

/// An empty directory for sockets that only this user may enter, in which ranks of one host meet by [`Local`].
///
/// Dropping it removes the directory and its contents. A directory whose process was killed is removed when this user
/// makes the next one, or by [`sweep`](Self::sweep). Ranks that meet by [`Local`] need a directory inside it, because
/// this directory is locked.
///
/// ```
/// use std::time::{Duration, Instant};
/// use symmetra::bootstrap::{Directory, Local};
///
/// let directory = Directory::new()?;
/// let alone = Local::connect(directory.path().join("ranks"), 0, 1, Instant::now() + Duration::from_secs(1))?;
/// # Ok::<(), symmetra::Error>(())
/// ```
///
/// [`Local`]: super::Local
#[derive(Debug)]
pub struct Directory {
    maker: Maker,
    path: PathBuf,
    _lock: Option<OwnedFd>,
}

impl Directory {
    /// Makes a directory in the directory for temporary files (TMPDIR).
    ///
    /// # Errors
    /// [`Error::System`] when the directory cannot be made.
    pub fn new() -> Result<Self> {
        let parent = parent()?;
        sweep(&parent);
        let maker = Maker::this();
        loop {
            let [first, second, third, fourth, ..] = random()?;
            let number = u32::from_ne_bytes([first, second, third, fourth]);
            let path = parent.join(format!("{PREFIX}{number:0DIGITS$x}"));
            match mkdirat(CWD, &path, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => {
                    let parent = parent.display();
                    return Err(Error::system(format_args!("make a directory in {parent} (TMPDIR)"), &errno.into()));
                }
            }
            match lock(&path) {
                Ok(Some(lock)) => return Ok(Self { maker, path, _lock: Some(lock) }),
                // Swept before it was locked.
                Ok(None) => {}
                // A file system without such locks, on which no rank sweeps.
                Err(_) => return Ok(Self { maker, path, _lock: None }),
            }
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directories of this user whose processes have ended, if they contain only sockets.
    ///
    /// # Errors
    /// [`Error::System`] when the current directory is needed and unknown.
    pub fn sweep() -> Result<()> {
        parent().map(|parent| sweep(&parent))
    }
}

/// Whether the owner of a directory that [`Directory::new`] made has dropped it, or its process has ended. False if
/// this is unknown: on a file system without such locks, or while a child that the process forked keeps the lock.
pub(crate) fn is_abandoned(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        // A shared lock, so that ranks that check at the same time do not mistake each other for the owner.
        Ok(directory) => flock(&directory, FlockOperation::NonBlockingLockShared).is_ok(),
        Err(errno) => errno == Errno::NOENT,
    }
}

fn parent() -> Result<PathBuf> {
    std::path::absolute(std::env::temp_dir())
        .map_err(|error| Error::system("find the directory for temporary files", &error))
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.maker.is_here() {
            remove(&self.path);
        }
    }
}

/// Removes the directories that killed ranks of this user left.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = is_name(entry.file_name().as_bytes())
            && entry.metadata().is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
        if ours
            && let Ok(Some(_lock)) = lock(&entry.path())
            && holds_sockets_alone(&entry.path()).unwrap_or(false)
        {
            remove(&entry.path());
        }
    }
}

/// Whether a name has the form of the names of [`Directory::new`].
fn is_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a directory, and every directory inside it, contains only sockets.
fn holds_sockets_alone(path: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if !(kind.is_socket() || kind.is_dir() && holds_sockets_alone(&entry.path())?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks a directory. None if another process holds the lock or has removed the directory.
fn lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(CWD, path, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    // The previous owner of the lock may have removed the directory.
    let locked = fstat(&directory)?;
    match stat(path) {
        Ok(there) if (there.st_dev, there.st_ino) == (locked.st_dev, locked.st_ino) => Ok(Some(directory)),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        crate::log!(WARN, "{} is left: {error}", path.display());
    }
}

#[cfg(test)]
#[path = "../../tests/unit/bootstrap/directory.rs"]
mod tests;
