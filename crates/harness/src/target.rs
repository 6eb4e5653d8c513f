//! Checks of output files before the work. The checks leave the files as they are.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, access, statx};

use crate::failure::CommandFailure;

/// Refuses a path that cannot be written in place: a new or old file, a pipe or a device.
pub fn check_written(option: &str, path: &Path) -> Result<(), CommandFailure> {
    let refused = |error: io::Error| refused(option, path, error);
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(refused(ErrorKind::IsADirectory.into())),
        // A pipe is not opened: that would wait for its reader and end its input.
        Ok(_) => access(path, Access::WRITE_OK).map_err(|error| refused(error.into())),
        Err(_) => resolve(path).and_then(|path| try_new(&path)).map_err(refused),
    }
}

/// Refuses a path that cannot be replaced by a file of the same name. Returns the path with links followed.
pub fn check_replaced(option: &str, path: &Path) -> Result<PathBuf, CommandFailure> {
    if let Ok(there) = fs::metadata(path) {
        if !there.is_file() {
            return Err(refused(option, path, "it is no regular file"));
        }
        access(path, Access::WRITE_OK).map_err(|error| refused(option, path, error))?;
        if is_mount_point(path) {
            return Err(refused(option, path, "it is a mount point, which no file can replace"));
        }
    }
    resolve(path).map_err(CommandFailure::doing(format!("write {}", path.display())))
}

/// Refuses a file in whose folder no other file can be created, because a new file replaces the old one.
pub fn check_beside(option: &str, path: &Path) -> Result<(), CommandFailure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    tempfile::Builder::new().prefix(".symmetra-").tempfile_in(folder).map_err(|error| refused(option, path, error))?;
    Ok(())
}

fn refused(option: &str, path: &Path, why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::usage(format!("{option}: cannot write {}: {why}", path.display()))
}

fn try_new(path: &Path) -> io::Result<()> {
    File::create_new(path)?;
    // A failure leaves an empty file.
    let _ = fs::remove_file(path);
    Ok(())
}

/// The path of the file that writing to `path` makes, with links followed.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    // All errors but a missing file are refused here, also a loop of links.
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        resolved => return resolved,
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::read_link(path) {
        Ok(target) => resolve(&folder.join(target)),
        Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => Err(ErrorKind::IsADirectory.into()),
        Err(error) => Ok(folder.canonicalize()?.join(path.file_name().ok_or(error)?)),
    }
}

/// Whether a file system or another file is mounted at `path`; false if the system does not report it.
fn is_mount_point(path: &Path) -> bool {
    let told = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
