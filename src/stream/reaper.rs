//! The thread that drops what must not be dropped where its last user is: a callback may call no device, and a call
//! waits for no work of another stream.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::Kept;
use crate::error::{Error, Result};
use crate::exit;

/// Whether the process is at its end. Held while something is dropped.
static ENDS: Mutex<bool> = Mutex::new(false);
/// How long the end of the process waits for a drop.
const LAST_DROP: Duration = Duration::from_secs(5);

/// Starts the thread where it does not run yet.
pub(super) fn start() -> Result<()> {
    reaper().map(drop)
}

/// Leaves the drop to the thread. Does not block, unless the thread cannot be started.
pub(super) fn hand_over(last: Kept) {
    if let Ok(reaper) = reaper() {
        // A send fails only when the reaper is gone with its process.
        let _ = reaper.send(last);
    }
}

fn reaper() -> Result<&'static Sender<Kept>> {
    static REAPER: OnceCell<Sender<Kept>> = OnceCell::new();
    REAPER.get_or_try_init(|| {
        let (sender, receiver) = mpsc::channel::<Kept>();
        std::thread::Builder::new()
            .name("symmetra-reaper".to_owned())
            .spawn(move || receiver.into_iter().for_each(reap))
            .map_err(|error| Error::system("start the reaper thread", &error))?;
        exit::before(end, "graphs and streams that end with the process may disturb its end");
        Ok(sender)
    })
}

fn reap(last: Kept) {
    let ends = ENDS.lock();
    match *ends {
        false => drop(last),
        // The process gives it back; a device runtime that is going away cannot.
        true => std::mem::forget(last),
    }
}

/// Lets the reaper finish what it drops, and drop nothing more.
extern "C" fn end() {
    if let Some(mut ends) = ENDS.try_lock_for(LAST_DROP) {
        *ends = true;
    }
}
