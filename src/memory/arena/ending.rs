//! The end of a group's memory: by closing, by departing, or when the last owner drops the memory.

use std::sync::atomic::Ordering;

use super::super::multicast::Bound;
use super::Arena;
use crate::bootstrap::Bootstrap;
use crate::error::Result;

impl Arena {
    /// Closes the group's memory: waits for the device, unmaps peers' memory, and lets peers free theirs. Blocks.
    pub(crate) fn close(&self) -> Result<()> {
        self.group.begin_close()?;
        self.drain()?;
        self.complete_times();
        // The device's work may have failed, or may have waited for a rank that died.
        self.group.settle()?;
        self.let_go();
        self.group.exchange_unchecked(|mesh, deadline| mesh.barrier(deadline))?;
        // After the barrier no peer writes here any more.
        let intact = self.check_guards();
        // Peers may still be in the barrier, and a process may end before the last clone is dropped: the goodbye
        // distinguishes this from a death.
        self.group.hang_up();
        let lent = std::mem::take(&mut *self.lent.lock());
        drop(lent);
        intact
    }

    /// Leaves the group without the peers: waits for the device, unmaps peers' memory, and disconnects. Needs no peer.
    pub(crate) fn depart(&self) -> Result<()> {
        self.group.begin_close()?;
        let finished = self.drain().and_then(|()| {
            self.complete_times();
            self.group.finished()
        });
        // After a failure kernels may still be running; the arena waits for them when it is dropped.
        if finished.is_ok() {
            self.let_go();
        }
        self.group.hang_up();
        finished
    }

    /// Notes a graph that may use the memory of the group, until [`remove_graph`](Self::remove_graph).
    pub(crate) fn add_graph(&self) {
        self.graphs.fetch_add(1, Ordering::Relaxed);
    }

    /// A graph has ended, with its launches.
    pub(crate) fn remove_graph(&self) {
        self.graphs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Unmaps peers' memory, multicast first. The device has no more work of the group. While graphs of streams' owners may use
    /// the memory, it stays until the arena is dropped: the graphs keep the arena.
    fn let_go(&self) {
        if self.graphs.load(Ordering::Relaxed) > 0 {
            return;
        }
        drop(self.multicast().ok().and_then(Bound::take));
        let peers = std::mem::take(&mut *self.peers.lock());
        let mut slots = self.slots.lock();
        // The device has no more work, so tables that were retired during the wait are freed too.
        let (used, retired) = (std::mem::take(&mut slots.used), std::mem::take(&mut slots.retired));
        drop(slots);
        drop((peers, used, retired));
        self.drop_idle();
    }
}

impl Drop for Arena {
    /// Never fails and needs no peer. Stops this rank's kernels and waits for the device. If the wait fails, it leaks
    /// the memory that a kernel may still use, because unmapping memory in use is worse.
    fn drop(&mut self) {
        // A forked child must not stop the device of its parent.
        if !self.group.device().is_here() {
            return;
        }
        self.group.stop_own_device();
        if let Err(error) = self.group.device().synchronize() {
            crate::log!(WARN, "the device of {:?} does not settle, the arena is leaked: {error}", self.group);
            std::mem::forget(self.multicast().ok().and_then(Bound::take));
            std::mem::forget(std::mem::take(self.peers.get_mut()));
            let slots = self.slots.get_mut();
            std::mem::forget((std::mem::take(&mut slots.used), std::mem::take(&mut slots.retired)));
            std::mem::forget(std::mem::take(&mut slots.idle));
            std::mem::forget(self.memory.clone());
            self.group.leak_status();
        }
        let lent = std::mem::take(self.lent.get_mut());
        let buffers = lent.len();
        if buffers > 0 && !self.group.config().silence {
            crate::log!(
                WARN,
                "not every rank closed {:?}: {buffers} plain buffers that others map are leaked",
                self.group
            );
        }
        std::mem::forget(lent);
    }
}
