//! A thread that waits for the end of values that other threads have given up, without blocking for one of them. It passes
//! each to the reaper thread, which drops it.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::reaper;
use crate::error::{Error, Result};
use crate::exit;
use crate::fork::Maker;

/// How often the thread looks at the values.
const LOOK: Duration = Duration::from_millis(1);
/// How long the end of the process waits for a look.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// A value with work that ends by itself.
pub(crate) trait Ending: Any + Send + Sync {
    /// Whether the work has ended. Does not block.
    fn is_over(&self) -> bool;
}

/// Whether the process is ending. Held during a look.
static ENDS: Mutex<bool> = Mutex::new(false);

/// The process with the thread, and the sender to the thread.
static THREAD: OnceCell<(Maker, Sender<Arc<dyn Ending>>)> = OnceCell::new();

/// Passes a value to the thread. Does not block, unless the thread cannot be started: then the value is leaked.
pub(crate) fn drop_at_end(value: Arc<dyn Ending>) {
    match thread() {
        Ok((maker, thread)) if maker.is_here() => drop(thread.send(value)),
        Ok(_) => std::mem::forget(value),
        Err(error) => {
            crate::log!(ERROR, "what a communicator holds is leaked: {error}");
            std::mem::forget(value);
        }
    }
}

fn thread() -> Result<&'static (Maker, Sender<Arc<dyn Ending>>)> {
    THREAD.get_or_try_init(|| {
        let (sender, receiver) = mpsc::channel();
        reaper::start()?;
        std::thread::Builder::new()
            .name("symmetra-ending".to_owned())
            .spawn(move || serve(&receiver))
            .map_err(|error| Error::system("start a thread", &error))?;
        exit::before(end, "communicators that were abandoned may disturb the end of the process");
        Ok((Maker::this(), sender))
    })
}

fn serve(receiver: &Receiver<Arc<dyn Ending>>) {
    let mut waiting: Vec<Arc<dyn Ending>> = Vec::new();
    loop {
        let next = match waiting.is_empty() {
            true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => receiver.recv_timeout(LOOK),
        };
        match next {
            Ok(value) => waiting.push(value),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let ends = ENDS.lock();
        if *ends {
            // The process returns the memory; a device runtime that is unloading cannot.
            return std::mem::forget(waiting);
        }
        for value in waiting.extract_if(.., |value| value.is_over()) {
            reaper::hand_over(value);
        }
    }
}

/// Waits for the look in progress and stops further ones.
extern "C" fn end() {
    if THREAD.get().is_none_or(|(maker, _)| !maker.is_here()) {
        return;
    }
    if let Some(mut ends) = ENDS.try_lock_for(LAST_LOOK) {
        *ends = true;
    }
}
