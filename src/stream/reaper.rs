//! A thread that drops values instead of their last user: a callback must not call a device, and a call must not wait
//! for another stream's work.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::Kept;
use crate::error::{Error, Result};
use crate::exit;
use crate::fork::Maker;

/// Whether the process is ending. Held while a value is dropped.
static ENDS: Mutex<bool> = Mutex::new(false);
/// How long the end of the process waits for a drop.
const LAST_DROP: Duration = Duration::from_secs(5);

pub(super) fn start() -> Result<()> {
    reaper().map(drop)
}

/// Passes a value to the thread to drop. Does not block, unless the thread cannot be started.
pub(super) fn hand_over(last: Kept) {
    match reaper() {
        Ok((maker, _)) if !maker.is_here() => std::mem::forget(last),
        // A send fails only when the reaper is gone with its process.
        Ok((_, reaper)) => drop(reaper.send(last)),
        Err(_) => {}
    }
}

/// The process with the thread, and the sender to the thread.
static REAPER: OnceCell<(Maker, Sender<Kept>)> = OnceCell::new();

fn reaper() -> Result<&'static (Maker, Sender<Kept>)> {
    REAPER.get_or_try_init(|| {
        let (sender, receiver) = mpsc::channel::<Kept>();
        std::thread::Builder::new()
            .name("symmetra-reaper".to_owned())
            .spawn(move || receiver.into_iter().for_each(reap))
            .map_err(|error| Error::system("start the reaper thread", &error))?;
        exit::before(end, "graphs and streams that end with the process may disturb its end");
        Ok((Maker::this(), sender))
    })
}

fn reap(last: Kept) {
    let ends = ENDS.lock();
    match *ends {
        false => drop(last),
        // The process returns the memory; a device runtime that is unloading cannot.
        true => std::mem::forget(last),
    }
}

/// Waits for the drop in progress and stops further ones.
extern "C" fn end() {
    if REAPER.get().is_none_or(|(maker, _)| !maker.is_here()) {
        return;
    }
    if let Some(mut ends) = ENDS.try_lock_for(LAST_DROP) {
        *ends = true;
    }
}
