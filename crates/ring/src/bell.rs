//! Sleeping until something changes, between processes, without a lost wake-up.
//!
//! An event count. Who waits notes the epoch, announces itself, looks once more and sleeps while
//! the epoch stays. Who changes something rings: if anybody announced itself the epoch moves and
//! the sleepers wake. Both sides put a sequentially consistent fence between their store and their
//! load, so the ringer sees the sleeper or the sleeper sees the change. A change that nobody sleeps
//! for costs a fence and a load; a sleep costs no processor time.

use std::time::Instant;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::spin::Spin;
#[cfg(loom)]
use tests::Futex;

/// All zero is a bell nobody waits at. Lives in shared memory, on a line of its own.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Bell {
    /// What sleepers watch.
    epoch: AtomicU32,
    /// How many announced themselves. One that is killed stays counted, which costs needless
    /// wake-ups and nothing else.
    sleepers: AtomicU32,
    #[cfg(loom)]
    futex: Futex,
}

impl Bell {
    /// Wakes who waits. What this thread stored before is seen by who wakes.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.epoch.fetch_add(1, Ordering::Release);
            self.wake();
        }
    }

    /// Polls until something is found or `deadline` passed: spins for as long as `spin` thinks
    /// worth it, then sleeps.
    pub(super) fn wait<T>(&self, spin: &mut Spin, deadline: Instant, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = spin.spin(deadline, &mut poll) {
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
        // It fails for an address that is no memory alone.
        let _ = futex::wake(&self.epoch, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps while the epoch is `epoch`. False when `deadline` passed. May wake for no reason.
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

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::{Condvar, Mutex};

    /// What the system promises of a futex: to compare and to fall asleep are one step to who wakes.
    #[derive(Default)]
    pub(super) struct Futex {
        queue: Mutex<()>,
        changed: Condvar,
    }

    impl Futex {
        pub(super) fn wake(&self) {
            drop(self.queue.lock().unwrap());
            self.changed.notify_all();
        }

        pub(super) fn sleep(&self, unchanged: impl Fn() -> bool) {
            let queue = self.queue.lock().unwrap();
            if unchanged() {
                drop(self.changed.wait(queue).unwrap());
            }
        }
    }
}
