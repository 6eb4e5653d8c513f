//! A futex for loom.

use loom::sync::{Condvar, Mutex};

/// The guarantee of a futex: no wake-up falls between the comparison and the sleep.
#[derive(Default)]
pub(crate) struct Futex {
    queue: Mutex<()>,
    changed: Condvar,
}

impl Futex {
    pub(crate) fn wake(&self) {
        drop(self.queue.lock().unwrap());
        self.changed.notify_all();
    }

    pub(crate) fn sleep(&self, unchanged: impl Fn() -> bool) {
        let queue = self.queue.lock().unwrap();
        if unchanged() {
            drop(self.changed.wait(queue).unwrap());
        }
    }
}
