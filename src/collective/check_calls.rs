//! A comparison of words by a kernel on all ranks: of the next call, or, while a group opens, of a known bit pattern.
#![allow(unsafe_code)]

use super::{Inner, shape_of};
use crate::error::{Error, Result};
use crate::group::{Call, Finding};
use crate::kernel::{args, geometry};
use crate::memory::Scratch;
use crate::stream::Target;

/// A known bit pattern. The low bits are the operation that a timeout of the wait reports.
const HERE: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3200 | args::kOpAgree as u64];

impl Inner {
    /// Enqueues a comparison of a call with the calls of all ranks, before the call.
    pub(super) fn agree(&self, call: Call, fresh: bool, queue: Target<'_>) -> Result<()> {
        let wait = self.arena.wait(fresh);
        self.tell([call.bytes, call.descriptor], &self.arena.layout().agree, wait, queue)
    }

    /// Checks that every rank can store into the memory of every other rank, in the way of operations, because a driver may
    /// report access that does not work. Collective; blocks, for at most `deadlines.open`.
    pub(super) fn probe_peers(&self) -> Result<()> {
        self.probe_peers_with(HERE)
    }

    /// Sends `ours` to all peers and expects the known bit pattern from each peer.
    fn probe_peers_with(&self, ours: [u64; 2]) -> Result<()> {
        if self.group.world_size() == 1 {
            return Ok(());
        }
        let seen = self.see_peers(ours);
        self.group.exchange_unchecked(|mesh, deadline| mesh.agree("reach the memory of the others", seen, deadline))
    }

    fn see_peers(&self, ours: [u64; 2]) -> Result<()> {
        let stream = self.arena.stream();
        // Ranks that receive all stores wait for the reports of ranks that do not.
        let wait = self.arena.wait_for(self.group.config().deadlines.open / 2);
        self.tell(ours, &self.arena.layout().meet, wait, Target::Eager(stream))?;
        stream.synchronize()?;
        let (peer, detail) = match self.group.own_finding() {
            // On a rank that a peer stopped, that peer reports the failure.
            None => return Ok(()),
            Some(Finding::Late(peer)) => (peer, "do not arrive"),
            Some(Finding::Different(peer)) => (peer, "arrive with other bits"),
        };
        Err(Error::unsupported(
            format!("access of rank {peer} to the memory of rank {}", self.group.rank()),
            format!("its stores {detail} (`symmetra doctor` probes every pair of devices)"),
        ))
    }

    fn tell(&self, ours: [u64; 2], scratch: &Scratch, wait: args::Wait, queue: Target<'_>) -> Result<()> {
        let args = args::AgreeArgs {
            peers: self.arena.everywhere(scratch.region.offset),
            state: self.arena.own(scratch.state.offset).cast(),
            ours,
            wait,
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
        };
        let launch = geometry::single(shape_of(&self.group), 2 * args.world);
        // SAFETY: scratch lies in arenas that live until the device is idle (liveness, bounds); the lane orders its
        // use, or no other call exists yet (exclusion).
        queue.enqueue("launch an agreement", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/check_calls.rs"]
mod tests;
