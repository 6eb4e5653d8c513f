//! A comparison of words by a kernel on all ranks: of the next call, or, while a group opens, of a known bit pattern.
#![allow(unsafe_code)]

use crate::collective::limits_of;
use crate::error::{Error, Result};
use crate::group::{Announced, EnqueuedCall, Finding};
use crate::kernel::{args, geometry};
use crate::memory::{Arena, Scratch};
use crate::stream::Target;

/// A known bit pattern. The low bits are the operation that a timeout of the wait reports.
const HERE: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3200 | args::kOpAgree as u64];

/// Enqueues a comparison of a call with the calls of all ranks, before the call, to whose time the comparison counts.
pub(super) fn compare(arena: &Arena, call: EnqueuedCall, announced: Announced, queue: Target<'_>) -> Result<()> {
    compare_words(arena, [call.bytes, call.descriptor], &arena.layout().agree, arena.wait(announced), queue)
}

/// Checks that every rank can store into the memory of every other rank, in the way of operations, because a driver may
/// report access that does not work. Collective; blocks, for at most `deadlines.open`.
pub(in crate::collective) fn probe_peers(arena: &Arena) -> Result<()> {
    probe_peers_with(arena, HERE)
}

/// Sends `ours` to all peers and expects the known bit pattern from each peer.
fn probe_peers_with(arena: &Arena, ours: [u64; 2]) -> Result<()> {
    if arena.group().world_size() == 1 {
        return Ok(());
    }
    let seen = see_peers(arena, ours);
    arena.group().exchange_unchecked(|mesh, deadline| mesh.agree("reach the memory of the others", seen, deadline))
}

fn see_peers(arena: &Arena, ours: [u64; 2]) -> Result<()> {
    let (group, stream) = (arena.group(), arena.stream());
    // Ranks that receive all stores wait for the reports of ranks that do not.
    let wait = arena.wait_for(group.config().deadlines.open / 2);
    compare_words(arena, ours, &arena.layout().meet, wait, Target::Eager(stream))?;
    stream.synchronize()?;
    let (peer, detail) = match group.own_finding() {
        // On a rank that a peer stopped, that peer reports the failure.
        None => return Ok(()),
        Some(Finding::Late(peer)) => (peer, "do not arrive"),
        Some(Finding::Different(peer)) => (peer, "arrive with other bits"),
    };
    Err(Error::unsupported(
        format!("access of rank {peer} to the memory of rank {}", group.rank()),
        format!("its stores {detail} (`symmetra doctor` probes every pair of devices)"),
    ))
}

fn compare_words(arena: &Arena, ours: [u64; 2], scratch: &Scratch, wait: args::Wait, queue: Target<'_>) -> Result<()> {
    let args = args::AgreeArgs {
        peers: arena.everywhere(scratch.region.offset),
        state: arena.own(scratch.state.offset).cast(),
        ours,
        wait,
        rank: arena.group().rank() as u32,
        world: arena.group().world_size() as u32,
    };
    let launch = geometry::single(limits_of(arena.group()), 2 * args.world);
    // SAFETY: scratch lies in arenas that live until the device is idle (liveness, bounds); the lane orders its
    // use, or no other call exists yet (exclusion).
    queue.enqueue("launch an agreement", |raw| unsafe { raw.launch(&args, &launch.geometry) })
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/turn/check_calls.rs"]
mod tests;
