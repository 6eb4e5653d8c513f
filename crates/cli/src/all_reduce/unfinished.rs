//! The file that becomes the output once it is whole.
//!
//! The file is locked while its command lives. When a command is killed, the system drops the lock, and the next
//! command of that user that writes into the same folder removes the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::{Builder, NamedTempFile};

use harness::output;

/// The prefix and the suffix of the names.
const PREFIX: &str = ".symmetra-";
const SUFFIX: &str = ".unfinished";

/// Makes an empty file in `folder`, for this user alone.
pub(super) fn create(folder: &Path) -> io::Result<NamedTempFile> {
    sweep(folder);
    loop {
        let file = Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder)?;
        match lock(file.as_file()) {
            Ok(()) if file.as_file().metadata()?.nlink() > 0 => return Ok(file),
            // The file was removed before it was locked.
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            // A file system without such locks, in which no command removes files.
            Err(_) => return Ok(file),
        }
    }
}

/// Locks the file, without a wait. `File::try_lock` needs Rust 1.89.
fn lock(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes the files that killed commands of this user left.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with(PREFIX)
            && name.ends_with(SUFFIX)
            && entry.metadata().is_ok_and(|there| there.is_file() && there.uid() == geteuid().as_raw());
        if ours
            && let Ok(file) = File::open(entry.path())
            && lock(&file).is_ok()
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            // If this note cannot be written, the next command writes it.
            let _ = output::note(format_args!("{} is left: {error}", entry.path().display()));
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/unfinished.rs"]
mod tests;
