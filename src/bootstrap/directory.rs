//! A directory for sockets that does not outlive its process for long.
//!
//! The directory is locked while its process lives. When the process ends, even by a kill, the system drops the
//! lock, and the next rank of that user that makes such a directory removes the unlocked ones. Abstract sockets
//! would leave no files. But they belong to a network namespace, so ranks in containers of one host that share
//! only a directory for temporary files would not meet.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::handshake::random;
use crate::error::{Error, Result};

/// How the names begin. Other names are never removed.
const PREFIX: &str = "symmetra-ranks-";

/// An empty directory that only this user may enter. Dropping it removes the directory and its files.
pub struct Directory {
    path: PathBuf,
    _lock: Option<OwnedFd>,
}

impl Directory {
    /// Makes one in the directory for temporary files (TMPDIR).
    pub fn new() -> Result<Self> {
        let parent = std::path::absolute(std::env::temp_dir())
            .map_err(|error| Error::system("find the directory for temporary files", &error))?;
        sweep(&parent);
        loop {
            let [first, second, third, fourth, ..] = random()?;
            let number = u32::from_ne_bytes([first, second, third, fourth]);
            let path = parent.join(format!("{PREFIX}{number:08x}"));
            match mkdirat(CWD, &path, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => {
                    let doing = format_args!("make a directory in {} (TMPDIR)", parent.display());
                    return Err(Error::system(doing, &errno.into()));
                }
            }
            match lock(&path) {
                Ok(Some(lock)) => return Ok(Self { path, _lock: Some(lock) }),
                // Swept before it was locked.
                Ok(None) => {}
                // A file system without such locks, where nobody sweeps.
                Err(_) => return Ok(Self { path, _lock: None }),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directories that killed ranks of this user left.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
        if ours && let Ok(Some(_lock)) = lock(&entry.path()) {
            remove(&entry.path());
        }
    }
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
    // Whoever had the lock before may have removed it.
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
