//! The groups of this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::Health;
use crate::error::Result;
use crate::fork::Maker;

/// The ranks of this process, and the process.
static LIVING: OnceCell<(Maker, Mutex<Vec<Weak<Health>>>)> = OnceCell::new();

impl Health {
    /// Adds this rank to the ranks of this process, until the rank is dropped.
    pub(super) fn live(self: &Arc<Self>) {
        let (_, living) = LIVING.get_or_init(|| (Maker::this(), Mutex::default()));
        let mut living = living.lock();
        living.retain(|rank| rank.strong_count() > 0);
        living.push(Arc::downgrade(self));
    }
}

/// The ranks of this process, some of which may have been dropped; `None` without a rank. A forked child has no ranks.
pub(super) fn living() -> Option<&'static Mutex<Vec<Weak<Health>>>> {
    LIVING.get().filter(|(maker, _)| maker.is_here()).map(|(_, living)| living)
}

/// Writes the histories of all ranks of this process into a folder, as [`Communicator::dump`](crate::Communicator::dump) does,
/// and returns the paths. Any thread may call it. A forked child has no ranks.
///
/// # Errors
/// [`Error::System`](crate::Error::System) for the first file that cannot be written.
pub fn dump_all(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let Some(living) = living() else { return Ok(Vec::new()) };
    // Without the lock: opening a group does not wait for a disk.
    let ranks: Vec<Arc<Health>> = living.lock().iter().filter_map(Weak::upgrade).collect();
    ranks.iter().map(|rank| rank.dump(folder.as_ref())).collect()
}
