//! An event count on a futex: processes sleep until something changes, and no wake-up is lost.
//!
//! A waiting party notes the epoch, counts itself as a sleeper, polls once more, and sleeps while the epoch stays. A
//! party that changes something looks for sleepers; if there are any, it moves the epoch and wakes them. Both put a
//! sequentially consistent fence between their store and their load, so the notifying party sees the sleeper or the
//! sleeper sees the change. A change without sleepers costs a fence and a load; a sleep costs no processor time.

use std::time::Instant;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::backoff::Backoff;
#[cfg(loom)]
use super::futex::Futex;

/// Lies in shared memory, on a line of its own. All zero is an event without sleepers.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct FutexEvent {
    /// The word on which sleepers wait.
    epoch: AtomicU32,
    /// How many parties sleep or are about to. A killed sleeper stays counted, which costs only needless wake-ups.
    sleepers: AtomicU32,
    #[cfg(loom)]
    futex: Futex,
}

impl FutexEvent {
    /// Wakes all sleepers. They see what this thread stored before.
    pub(super) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.epoch.fetch_add(1, Ordering::Release);
            self.wake();
        }
    }

    /// Polls until something is found or `deadline` passed: spins within the limit of `backoff`, then sleeps.
    pub(super) fn wait<T>(
        &self,
        backoff: &mut Backoff,
        deadline: Instant,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = backoff.spin(deadline, &mut poll) {
            return Some(found);
        }
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let found = poll();
            let late = found.is_none() && !self.sleep(epoch, deadline);
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if found.is_some() {
                return found;
            }
            if late {
                return poll();
            }
        }
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        use rustix::thread::futex;
        // Fails only for an address that is no memory.
        let _ = futex::wake(&self.epoch, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps while the epoch is `epoch`. Returns false when `deadline` passed. May wake for no reason.
    #[cfg(not(loom))]
    fn sleep(&self, epoch: u32, deadline: Instant) -> bool {
        use rustix::thread::futex;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let timeout = futex::Timespec::try_from(left).ok(); // none: further away than the clock counts
        // Woken, interrupted, too late or changed already: the caller looks again.
        let _ = futex::wait(&self.epoch, futex::Flags::empty(), epoch, timeout.as_ref());
        true
    }

    #[cfg(loom)]
    fn wake(&self) {
        self.futex.wake();
    }

    #[cfg(loom)]
    fn sleep(&self, epoch: u32, _deadline: Instant) -> bool {
        self.futex.sleep(|| self.epoch.load(Ordering::Relaxed) == epoch);
        true
    }
}
