//! Calls of a group that another library runs: noted, and compared across ranks, like the own ones.

use super::Communicator;
use super::graph_part::Recorded;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Enqueue;

impl Communicator {
    /// Notes a call that is about to be enqueued elsewhere, so that a rank that leaves it out can be named. With
    /// `check_calls` all ranks compare it, on the device, ahead of what is enqueued next; that starts all
    /// the same where they differ, but the group has failed by then.
    pub(crate) fn announce_elsewhere(&self, call: Call, queue: &impl Enqueue) -> Result<()> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let recorded = queue.recording().map(|recording| recording.part(inner.group.id(), || Recorded::new(inner)));
        let compared = inner.group.config().check_calls;
        let mut lane = inner.lane.lock();
        // Where something is enqueued ahead of it.
        if compared || !lane.told {
            lane.order_call(queue)?;
        }
        let first = inner.announce(call, &mut lane, queue, recorded.as_deref())?;
        // Without a kernel the device has not begun.
        lane.fresh |= first && !compared;
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/note_nccl.rs"]
mod tests;
