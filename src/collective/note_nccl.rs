//! Calls that NCCL runs are entered in the history and compared across ranks, like calls on symmetra kernels.

use super::Communicator;
use super::graph_part::Recorded;
use crate::error::Result;
use crate::group::Call;
use crate::stream::Target;

impl Communicator {
    /// Enters a call in the history before NCCL enqueues the call, so that errors can name a rank that omits it. With
    /// `check_calls`, all ranks compare the call on the device first. NCCL still runs a mismatched call, but the group is
    /// already marked failed.
    pub(crate) fn announce_elsewhere(&self, call: Call, queue: Target<'_>) -> Result<()> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let recorded = queue.recording().map(|recording| recording.part(inner.group.id(), || Recorded::new(inner)));
        let compared = inner.group.config().check_calls;
        let mut lane = inner.lane.take(call)?;
        // Only if a kernel is enqueued before the call.
        if compared || !lane.told {
            lane.order_call(queue)?;
        }
        let first = inner.announce(call, &mut lane, queue, recorded.as_deref())?;
        // Without a comparison, no kernel has run on the device.
        lane.fresh |= first && !compared;
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/note_nccl.rs"]
mod tests;
