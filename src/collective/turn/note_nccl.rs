//! Calls that NCCL runs are entered in the history and compared across ranks, like calls on symmetra kernels.

use super::Turn;
use crate::collective::Communicator;
use crate::error::Result;
use crate::group::EnqueuedCall;
use crate::stream::Target;

impl Communicator {
    /// Enters a call in the history before NCCL enqueues the call, so that errors can name a rank that omits it. With
    /// `check_calls`, all ranks compare the call on the device first. NCCL still runs a mismatched call, but the group is
    /// already marked failed.
    pub(crate) fn announce_elsewhere(&self, call: EnqueuedCall, queue: Target<'_>) -> Result<()> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let compared = inner.group.config().check_calls;
        let mut turn = Turn::begin(inner, call, queue)?;
        // Only if a kernel is enqueued before the call.
        if compared || !turn.lane.told {
            turn.order()?;
        }
        let announced = turn.announce(call);
        let announced = turn.end(announced)?;
        // Without a comparison, no kernel has run on the device.
        turn.lane.fresh |= announced.is_first && !compared;
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/turn/note_nccl.rs"]
mod tests;
