//! The first call of each rank. Other ranks may make their first call late, so the waits of a first call may take
//! `deadlines.first_use`. The calls of a graph wait at most `deadlines.steady`. Each rank therefore signals its peers once,
//! before its first call, and a graph that is a rank's first call waits until all ranks have signalled.

use std::sync::Arc;

use super::Turn;
use crate::collective::heap::{launch_signal, own_signal};
use crate::error::Result;
use crate::kernel::args;
use crate::memory::Arena;

/// Channel of the communicator's own signal array.
const CHANNEL: usize = 1;

impl Turn<'_> {
    /// Enqueues the signals before an eager call. On an error the call is refused and nothing is enqueued. Returns whether
    /// the call's waits may take `deadlines.first_use`.
    pub(super) fn arrive(&mut self) -> Result<bool> {
        let Self { inner, queue, native, ref mut lane, .. } = *self;
        queue.stream().refuse_captured("enqueue a call")?;
        // A natively captured call may run at any time. It sends no signals, and another call is the first.
        if !lane.told && native.is_some() {
            return Ok(!std::mem::replace(&mut lane.captured, true));
        }
        if !lane.told {
            let (rank, world) = (inner.group.rank(), inner.group.world_size());
            for peer in (0..world).filter(|peer| *peer != rank) {
                // The signal does not wait. The call after it does.
                launch_signal(&inner.group, &arrival(&inner.arena, args::kSignalPut, peer)?, queue)?;
            }
            lane.told = true;
        }
        Ok(std::mem::take(&mut lane.fresh))
    }

    /// Enqueues a barrier before a graph whose first call is of operation `op`.
    pub(super) fn arrive_together(&mut self, op: u32) -> Result<()> {
        let Self { inner, queue, ref mut lane, .. } = *self;
        if lane.fresh && inner.group.world_size() > 1 {
            // The barrier waits for one signal of each rank. An earlier signal of this rank does no harm.
            let barrier = args::SignalArgs { op, ..arrival(&inner.arena, args::kSignalBarrier, inner.group.rank())? };
            launch_signal(&inner.group, &barrier, queue)?;
        }
        (lane.told, lane.fresh) = (true, false);
        Ok(())
    }
}

fn arrival(arena: &Arc<Arena>, action: u32, peer: usize) -> Result<args::SignalArgs> {
    own_signal(arena, action, peer, CHANNEL, true)
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/turn/first_call.rs"]
mod tests;
