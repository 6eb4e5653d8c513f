//! How a rank gives up its calls and leaves, while the other ranks go on.

use std::sync::atomic::Ordering;

use super::Group;
use super::control_page::WayOut;
use crate::error::Error;

impl Group {
    /// Makes the waits of this rank's device give up, and every later call of this rank fail with [`Error::Closed`].
    /// [`abandon`](Self::abandon) then notifies the peers. Returns false, and does nothing, if this rank has closed the group
    /// or departed from it, and in a forked child. Does not block.
    pub(crate) fn quit(&self) -> bool {
        if !self.0.device.is_here() || self.0.hung_up.load(Ordering::Relaxed) {
            return false;
        }
        match self.0.closed.try_write() {
            Some(closed) if *closed => return false,
            Some(mut closed) => *closed = true,
            // A call of another thread has entered, and finds the failure.
            None => {}
        }
        // Kept first: a call that finds the stop would otherwise notify the peers of an abort.
        self.0.health.keep(Error::Closed);
        self.stop_own_device();
        true
    }

    /// Whether this rank's device has work without a number in the history.
    pub(crate) fn is_unnumbered(&self) -> bool {
        self.0.health.own().unnumbered.load(Ordering::Relaxed) != 0
    }

    /// Whether a kernel of this rank has given up.
    pub(crate) fn has_given_up(&self) -> bool {
        self.0.health.own().code.load(Ordering::Acquire) != 0
    }

    /// Leaves the group after [`quit`](Self::quit). `is_over`: whether the device's work has ended. Peers that have made
    /// calls that this rank has not finished fail. If the number of these calls is unknown, all peers fail. Needs no peer.
    pub(crate) fn abandon(&self, is_over: bool) {
        let health = &self.0.health;
        // A group that had failed before ends with its failure.
        if matches!(health.failure.get(), Some(Error::Closed)) {
            let finished = health.own().finished_calls().filter(|_| is_over);
            if finished.is_none() {
                self.stop_all();
            }
            health.own().leave(WayOut::Abandoned, finished.unwrap_or(0));
            self.0.done.store(true, Ordering::Relaxed);
            self.0.settled.store(true, Ordering::Relaxed);
        }
        self.hang_up();
    }
}
