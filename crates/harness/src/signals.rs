//! Signals that ask a command to end.

use std::sync::Arc;

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use crate::failure::{CommandFailure, spawn};

/// Keeps these signals from ending this process. The caller reads them instead.
pub fn watched() -> Result<Signals, CommandFailure> {
    // Ranks inherit which signals this process ignores, as under `nohup`.
    let ignored = ignored();
    let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    Signals::new(watched).map_err(CommandFailure::doing("watch for signals"))
}

/// The signals that this process was started to ignore, a bit each from the lowest; 0 if the system does not
/// report them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// `SIGKILL`, or the number of a signal without a name.
pub fn name(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// A value that is also dropped when a signal ends this command: a file or a process that only this command uses.
pub struct Guard<T: Send + 'static>(Arc<Mutex<Option<T>>>);

/// The values that a signal drops.
struct GuardedValues {
    /// Whether a thread waits for signals.
    watched: bool,
    values: Vec<Arc<dyn Droppable>>,
}

static GUARDED: Mutex<GuardedValues> = Mutex::new(GuardedValues { watched: false, values: Vec::new() });

trait Droppable: Send + Sync {
    fn drop_value(&self);
}

impl<T: Send> Droppable for Mutex<Option<T>> {
    fn drop_value(&self) {
        drop(self.lock().take());
    }
}

/// Makes a value that a signal drops, and calls `look` on it. A signal waits until both are done.
pub fn guard<T: Send + 'static, R>(
    make: impl FnOnce() -> Result<T, CommandFailure>,
    look: impl FnOnce(&T) -> R,
) -> Result<(Guard<T>, R), CommandFailure> {
    let mut guarded = GUARDED.lock();
    if !guarded.watched {
        let signals = watched()?;
        spawn(move || end_at(signals))?;
        guarded.watched = true;
    }
    let value = make()?;
    let seen = look(&value);
    let value = Arc::new(Mutex::new(Some(value)));
    guarded.values.push(value.clone());
    Ok((Guard(value), seen))
}

/// Waits for a signal, drops all guarded values, and ends this process as the signal would have done.
fn end_at(mut signals: Signals) {
    if let Some(signal) = signals.forever().next() {
        // Held until the end: no thread can guard another value, and a thread that releases a value waits for the end.
        let guarded = GUARDED.lock();
        guarded.values.iter().for_each(|value| value.drop_value());
        let _ = emulate_default_handler(signal);
    }
}

impl<T: Send + 'static> Guard<T> {
    /// Changes the value, if no signal has come. A signal waits until that is done.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.lock().as_mut().map(change)
    }

    /// Uses the value up, if no signal has come. A signal waits until that is done.
    pub fn take<R>(&self, then: impl FnOnce(T) -> R) -> Option<R> {
        let mut value = self.0.lock();
        value.take().map(then)
    }
}

impl<T: Send + 'static> Drop for Guard<T> {
    fn drop(&mut self) {
        let mut guarded = GUARDED.lock();
        let address = Arc::as_ptr(&self.0).cast::<()>();
        guarded.values.retain(|value| Arc::as_ptr(value).cast::<()>() != address);
        self.0.drop_value();
    }
}
