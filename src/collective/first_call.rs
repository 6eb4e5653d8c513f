//! The first call of each rank. Others may be long in coming to theirs, so its waits may take `deadlines.first_use`;
//! but what a graph holds waits no longer than later calls do. So ranks tell each other that they have come, once, ahead
//! of their first calls, and a graph that is a rank's first waits until all have told: whatever they begin with.
#![allow(unsafe_code)]

use super::call_order::Lane;
use super::{Inner, shape_of};
use crate::error::Result;
use crate::kernel::{args, geometry};
use crate::stream::{Enqueue, Stream};

/// Of the communicator's own pad.
const CHANNEL: usize = 1;

impl Inner {
    /// What goes ahead of an eager call, which it may refuse: then nothing is enqueued. Whether the call's waits may take
    /// `deadlines.first_use`.
    pub(super) fn arrive(&self, lane: &mut Lane, queue: &impl Enqueue) -> Result<bool> {
        queue.stream().refuse_captured("enqueue a call")?;
        // What its owner captures runs nobody knows when, if at all: it tells nobody, and another call is the first.
        if !lane.told && queue.stream().is_capturing()? {
            return Ok(!std::mem::replace(&mut lane.captured, true));
        }
        if !lane.told {
            let (rank, world) = (self.group.rank(), self.group.world_size());
            for peer in (0..world).filter(|peer| *peer != rank) {
                // It waits for nobody: the call behind it does.
                self.signal_arrival(&self.arrival(args::kSignalPut, peer)?, queue)?;
            }
            lane.told = true;
        }
        Ok(std::mem::take(&mut lane.fresh))
    }

    /// What goes ahead of a graph whose first call is of operation `op`.
    pub(super) fn arrive_together(&self, op: u32, lane: &mut Lane, stream: &Stream) -> Result<()> {
        if lane.fresh && self.group.world_size() > 1 {
            // One signal of each is waited for: that this rank may have told before does no harm.
            let barrier = args::SignalArgs { op, ..self.arrival(args::kSignalBarrier, self.group.rank())? };
            self.signal_arrival(&barrier, &stream)?;
        }
        (lane.told, lane.fresh) = (true, false);
        Ok(())
    }

    fn arrival(&self, action: u32, peer: usize) -> Result<args::SignalArgs> {
        self.aside_signal(action, CHANNEL, peer, true)
    }

    fn signal_arrival(&self, args: &args::SignalArgs, queue: &impl Enqueue) -> Result<()> {
        let launch = geometry::single(shape_of(self.group.device()), args.world);
        // SAFETY: the pads lie in arenas that live until the device is idle (liveness, bounds); the lane orders
        // signals of this channel (exclusion).
        queue.enqueue("launch a signal", |raw| unsafe { raw.launch(args, &launch.geometry) })
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/first_call.rs"]
mod tests;
