//! Low-contention collectives: copy engines move the data between two barriers, on a side stream, so that multiprocessors
//! stay free for other work. PyTorch's symmetric memory has collectives of the same name.
#![allow(unsafe_code)]

mod pending;
mod push;
mod stream;
mod words;

use std::sync::Arc;

use smallvec::SmallVec;

use super::local::LocalReduction;
use super::reach::{arena_offset, unaddressed};
use super::turn::{Recorded, Turn};
use super::{Communicator, Inner};
use crate::device::DeviceKind;
use crate::error::{Error, Operation, Result};
use crate::group::{EnqueuedCall as Noted, MAX_WORLD_SIZE, Places};
use crate::kernel::args::{ExchangeArgs, Geometry};
use crate::memory::{Place, SymmetricBuffer, View};
use crate::op::{Call, Strip};
use crate::stream::{Event, Target};
use crate::sys::device as sys;
use crate::types::{WAY_COPY_ENGINES, WAY_NOTHING};

pub use pending::Pending;
use stream::{Beside, beside, meet_on, workspace};
pub(super) use stream::{Events, SideStream};

/// Alignment of the parts of a workspace: the reduction reads whole packets.
const ALIGN_BYTES: usize = 16;

/// The transport that ranks compare with `check_calls`.
const DIRECT: u32 = WAY_COPY_ENGINES;
const IN_PLACE: u32 = WAY_COPY_ENGINES | 1;
const BY_WORKSPACE: u32 = WAY_COPY_ENGINES | 2;
const PUSHED: u32 = WAY_COPY_ENGINES | 3;

/// Work of the caller's queue for each part of a low-contention collective, which runs while copies move other parts.
pub(crate) struct CopyParts<'a> {
    /// One event for each rank.
    events: SmallVec<[Event; MAX_WORLD_SIZE]>,
    /// The buffer into which peers write the parts of an all-gather.
    kept: Option<&'a SymmetricBuffer<u8>>,
    each: &'a mut dyn FnMut(usize) -> Result<()>,
}

impl<'a> CopyParts<'a> {
    /// `each` enqueues the work for the part of a rank on the caller's queue. In an all-gather the work runs after the part's
    /// arrival, and this rank's part is first. Else the work runs before the part is sent, and this rank's part is last.
    pub(crate) fn new(each: &'a mut dyn FnMut(usize) -> Result<()>) -> Self {
        Self { events: SmallVec::new(), kept: None, each }
    }

    /// For an all-gather whose parts peers write into `kept`. The work finds the parts of peers there, and this rank's part in
    /// the input. All parts are copied to the output concurrently with the work, unless the output is `kept`. No other call
    /// uses `kept` or its signals, on any rank, until the work of this call is done on all ranks. Either all ranks or none
    /// use this form.
    pub(crate) fn pushed(kept: &'a SymmetricBuffer<u8>, each: &'a mut dyn FnMut(usize) -> Result<()>) -> Self {
        Self { kept: Some(kept), ..Self::new(each) }
    }

    /// Enqueues the work for the parts of all ranks if parts have no elements, in the same order as parts with elements.
    fn of_nothing(&mut self, gathers: bool, rank: usize, world: usize) -> Result<()> {
        let first = usize::from(!gathers);
        (first..first + world).try_for_each(|step| (self.each)((rank + step) % world))
    }

    /// Enqueues the work for the part of a rank, which the side stream then waits for.
    fn produce(&mut self, peer: usize, beside: &Beside<'_>) -> Result<()> {
        (self.each)(peer)?;
        beside.produced(&self.events[peer])
    }
}

impl Communicator {
    /// Enqueues the low-contention form of a call on the side stream.
    pub(crate) fn run_low_contention<'op>(&self, call: &Call<'_>, queue: Target<'_>) -> Result<Pending<'op>> {
        self.run_by_parts(call, None, queue)
    }

    /// Enqueues the low-contention form of a call on the side stream, with work for each part on the queue.
    pub(crate) fn run_by_parts<'op>(
        &self,
        call: &Call<'_>,
        mut parts: Option<CopyParts<'_>>,
        queue: Target<'_>,
    ) -> Result<Pending<'op>> {
        let (inner, call) = (&self.0, &*call.tagged(self.1));
        inner.group.check()?;
        let shape = call.check(inner.group.rank(), inner.group.world_size(), inner.group.device())?;
        inner.check_device("stream", queue.stream().device())?;
        inner.lane.refuse_within(call.op.operation)?;
        let recorded = Recorded::of(inner, queue);
        if recorded.is_none() && queue.stream().is_capturing()? {
            return Err(Error::unsupported(
                "a low-contention collective on a stream that is being captured",
                "in Stream::capture call it on the capture; what a caller captures by itself it cannot join",
            ));
        }
        if let Some(parts) = &mut parts {
            parts.events = inner.events.take(inner.group.device(), inner.group.world_size())?;
        }
        let pending = match (&call.input, &call.output) {
            (Some(input), Some(output)) => {
                let (rank, world, bytes) = (shape.rank, shape.world, shape.bytes() as usize);
                LowContention { inner, queue, recorded, call, input, output, rank, world, bytes }
                    .enqueue(parts.as_mut())
            }
            _ => Err(no_form(call.op.operation)),
        };
        if let Some(parts) = parts {
            inner.events.give_back(parts.events);
        }
        pending
    }

    /// Makes the workspace of [`ProcessGroup::reserve_workspace`](crate::ProcessGroup::reserve_workspace).
    pub(crate) fn make_workspace(&self, bytes: usize) -> Result<()> {
        self.0.group.check()?;
        self.refuse_within("a workspace")?;
        workspace(&self.0, workspace_bytes(bytes, self.world_size()), None).map(drop)
    }
}

/// Bytes of the workspace for operands of up to `bytes` bytes, whose parts are rounded up to whole packets.
pub(crate) fn workspace_bytes(bytes: usize, world_size: usize) -> usize {
    bytes.saturating_add(world_size * ALIGN_BYTES)
}

/// A checked low-contention call.
struct LowContention<'c> {
    inner: &'c Arc<Inner>,
    queue: Target<'c>,
    recorded: Option<Arc<Recorded>>,
    call: &'c Call<'c>,
    input: &'c View<'c>,
    output: &'c View<'c>,
    rank: usize,
    world: usize,
    /// Bytes of one part.
    bytes: usize,
}

/// The properties that are common to the copies of all ranks.
struct Copies {
    /// The transport that ranks compare.
    way: u32,
    /// Offset of the operand that peers read, equal in all arenas; else 0.
    offset_bytes: u64,
    /// Whether this rank's own part is copied on a separate branch.
    apart: bool,
    /// Whether the queue itself runs the barrier before the call, waits for arrival words, and ends the call, in memory that
    /// the next call on the side stream may write.
    on_queue: bool,
}

impl LowContention<'_> {
    fn enqueue<'op>(&self, parts: Option<&mut CopyParts<'_>>) -> Result<Pending<'op>> {
        let kept = parts.as_ref().and_then(|parts| parts.kept);
        match (self.call.op.operation, kept, parts) {
            (Operation::AllGather, Some(kept), Some(parts)) => self.push_gather(kept, parts),
            (Operation::AllGather, _, parts) => self.gather(parts),
            (Operation::ReduceScatter, _, parts) => self.reduce_scatter(parts),
            (Operation::AllToAll, _, parts) => self.all_to_all(parts),
            (operation, ..) => Err(no_form(operation)),
        }
    }

    fn gather<'op>(&self, mut parts: Option<&mut CopyParts<'_>>) -> Result<Pending<'op>> {
        let Self { inner, input, output, rank, world, bytes, .. } = *self;
        let part = |rank: usize| output.address.wrapping_add(rank * bytes);
        let in_place = part(rank) == input.address;
        // For an in-place call, only the output has an equal offset on all ranks.
        let shared = if in_place { output } else { input };
        let located = inner.locate(shared, shared.elems * self.call.dtype.bytes());
        let shared = &located.view;
        let reached = world == 1 || bytes == 0 || self.copies_reach(shared);
        let workspace = (!reached).then(|| self.workspace(bytes)).transpose()?;
        let way = match reached {
            true if in_place => IN_PLACE,
            true => DIRECT,
            false => BY_WORKSPACE,
        };
        let offset_bytes = arena_offset(inner.group.id(), shared).filter(|_| reached).unwrap_or(0);
        if let (true, Some(recorded), Some(pooled)) = (reached, &self.recorded, &located.pooled) {
            recorded.found(pooled, 0);
        }
        let apart = !in_place && parts.is_none();
        self.run(&Copies { way, offset_bytes, apart, on_queue: false }, |beside, fresh| {
            if bytes == 0 {
                return parts.map_or(Ok(()), |parts| parts.of_nothing(true, rank, world));
            }
            // SAFETY: operands have room for the parts (bounds, checked above) and are freed only after the
            // device's work, or are the caller's duty; side and graph own the workspace.
            let copy = |to, from: *mut u8| unsafe { beside.copy(to, from, bytes) };
            if apart {
                // SAFETY: as above. On a branch, so that the barrier starts before the caller's next work, which may
                // leave the barrier no multiprocessor.
                unsafe { beside.copy_apart(part(rank), input.address, bytes) }?;
            }
            if let Some(workspace) = &workspace {
                copy(workspace.as_raw(), input.address)?;
            }
            let peers = (1..world).map(|step| (rank + step) % world);
            if world > 1 {
                beside.meet(self.op(), fresh)?;
            }
            // In each step a rank reads from another peer.
            for peer in peers.clone() {
                let from = match &workspace {
                    Some(workspace) => workspace.at(peer)?,
                    None => self.of_peer(shared, if in_place { peer * bytes } else { 0 }, peer)?,
                };
                copy(part(peer), from)?;
                if let Some(parts) = &parts {
                    beside.arrived(&parts.events[peer])?;
                }
            }
            if world > 1 {
                beside.meet(self.op(), fresh)?;
            }
            let Some(parts) = &mut parts else { return Ok(()) };
            if !in_place {
                // SAFETY: as above.
                self.queue.enqueue("copy", |raw| unsafe { raw.copy(part(rank), input.address, bytes) })?;
            }
            (parts.each)(rank)?;
            peers.into_iter().try_for_each(|peer| {
                beside.await_arrival(&parts.events[peer])?;
                (parts.each)(peer)
            })
        })
    }

    fn reduce_scatter<'op>(&self, mut parts: Option<&mut CopyParts<'_>>) -> Result<Pending<'op>> {
        let Self { input, output, rank, world, bytes, .. } = *self;
        let pitch = bytes.next_multiple_of(ALIGN_BYTES);
        let needed = if world == 1 || bytes == 0 { 0 } else { world * pitch };
        let workspace = (needed > 0).then(|| self.workspace(needed)).transpose()?;
        let on_queue = parts.is_some() && needed > 0;
        let copies = Copies { way: BY_WORKSPACE, offset_bytes: 0, apart: false, on_queue };
        let part = |rank: usize| input.address.wrapping_add(rank * bytes);
        self.run(&copies, |beside, fresh| {
            if bytes == 0 {
                return parts.map_or(Ok(()), |parts| parts.of_nothing(false, rank, world));
            }
            let mut produce = |peer: usize| parts.as_mut().map_or(Ok(()), |parts| parts.produce(peer, beside));
            let Some(workspace) = &workspace else {
                produce(0)?;
                if part(0) == output.address {
                    return Ok(());
                }
                // SAFETY: as below; with one rank, the part is the whole input.
                return unsafe { beside.copy(output.address, part(0), bytes) };
            };
            if !on_queue {
                // After this barrier all workspaces are free.
                beside.meet(self.op(), fresh)?;
            }
            for peer in (1..world).map(|step| (rank + step) % world) {
                produce(peer)?;
                let to = workspace.at(peer)?.wrapping_add(rank * pitch);
                // SAFETY: the input has `world` parts (bounds, checked above) and is freed only after the
                // device's work, or is the caller's duty; workspaces have a place for each rank, and live
                // as long as the side of their rank or the graph. No other rank writes there (exclusion).
                unsafe { beside.copy(to, part(peer), bytes) }?;
                if on_queue {
                    beside.store_word(workspace, peer)?;
                }
            }
            if on_queue {
                beside.store_word(workspace, rank)?;
            }
            produce(rank)?;
            let brought: [*const u8; MAX_WORLD_SIZE] = std::array::from_fn(|source| match source {
                own if own == rank => part(rank).cast_const(),
                other if other < world => workspace.as_raw().wrapping_add(other * pitch).cast_const(),
                _ => std::ptr::null(),
            });
            let (args, geometry) = self.reduction(brought);
            // SAFETY: as for the copies before it; the output does not overlap memory that is read, or is in place.
            let reduce = |raw: &sys::Stream| unsafe { raw.launch(&args, &geometry) };
            if on_queue {
                beside.take_words(workspace, 0..world, self.op(), fresh)?;
                return self.queue.enqueue("launch a reduction", reduce);
            }
            // After this barrier all parts have arrived, and all ranks have sent theirs.
            beside.meet(self.op(), fresh)?;
            beside.enqueue("launch a reduction", reduce)
        })
    }

    fn all_to_all<'op>(&self, mut parts: Option<&mut CopyParts<'_>>) -> Result<Pending<'op>> {
        let Self { input, output, rank, world, bytes, .. } = *self;
        let pitch = bytes.next_multiple_of(ALIGN_BYTES);
        let part = |of: &View<'_>, rank: usize| of.address.wrapping_add(rank * bytes);
        // Copies go into workspaces, not into the outputs of peers: a copy cannot be cancelled, and would write into an output
        // after the peer has given up.
        let needed = if world == 1 || bytes == 0 { 0 } else { world * pitch };
        let workspace = (needed > 0).then(|| self.workspace(needed)).transpose()?;
        let copies = Copies { way: BY_WORKSPACE, offset_bytes: 0, apart: false, on_queue: false };
        self.run(&copies, |beside, fresh| {
            if bytes == 0 {
                return parts.map_or(Ok(()), |parts| parts.of_nothing(false, rank, world));
            }
            // SAFETY: operands have `world` parts (bounds, checked above) and are freed only after the device's work, or are
            // the caller's duty; workspaces have a place for each rank, and live as long as the side of their rank or the
            // graph. No other rank writes there between the barriers (exclusion).
            let copy = |to, from: *mut u8| unsafe { beside.copy(to, from, bytes) };
            let mut produce = |peer: usize| parts.as_mut().map_or(Ok(()), |parts| parts.produce(peer, beside));
            let Some(workspace) = &workspace else {
                produce(rank)?;
                return copy(part(output, rank), part(input, rank));
            };
            let peers = || (1..world).map(|step| (rank + step) % world);
            // After this barrier all workspaces are free.
            beside.meet(self.op(), fresh)?;
            for peer in peers() {
                produce(peer)?;
                copy(workspace.at(peer)?.wrapping_add(rank * pitch), part(input, peer))?;
            }
            produce(rank)?;
            copy(part(output, rank), part(input, rank))?;
            // After this barrier all parts have arrived.
            beside.meet(self.op(), fresh)?;
            peers().try_for_each(|peer| copy(part(output, peer), workspace.as_raw().wrapping_add(peer * pitch)))
        })
    }

    /// Announces the call in the order of calls and runs the call concurrently with the queue. Passes to `work` whether the
    /// call is the first on the side stream, independently of the callers' streams.
    fn run<'op>(&self, copies: &Copies, work: impl FnOnce(&Beside<'_>, bool) -> Result<()>) -> Result<Pending<'op>> {
        let Self { inner, queue, call, world, bytes, .. } = *self;
        let _entered = inner.group.enter()?;
        let operation = call.op.operation;
        let mut turn = Turn::begin_in(inner, operation, queue, self.recorded.clone())?;
        if bytes == 0 {
            turn.announce_empty(call.noted(0, WAY_NOTHING))?;
        }
        let mut fresh = false;
        if bytes > 0 && world > 1 {
            let compared = inner.group.config().check_calls;
            // The comparison of calls uses the lane's scratch, and the first call signals on the lane's channel.
            if compared || !turn.lane.told {
                turn.order()?;
            }
            let announced = turn.announce(self.noted(copies))?;
            // The caller's next call on the stream does not wait for this call. That call therefore still has the waits of a
            // first call, unless a comparison ran on the stream.
            turn.lane.fresh |= announced.is_first && !compared;
            fresh = self.recorded.is_none() && std::mem::take(&mut inner.side.lock().lane.fresh);
        }
        turn.end(Ok(()))?;
        let pending = turn.work(|turn| {
            if copies.on_queue {
                // After this barrier the memory that peers write is free. The barrier is on the caller's queue, before the
                // caller's work: on another stream, the work might leave it no multiprocessor, or the barrier might take one
                // from the work.
                meet_on(turn, self.op(), fresh).map_err(|error| self.lost(error))?;
            }
            beside(turn, copies.apart && bytes > 0, copies.on_queue, |beside| work(beside, fresh))
        });
        // In an all-gather, peers have all parts before the caller's work. In other collectives peers wait for parts, and would
        // mistake the next call's barrier for the barrier of this call.
        pending.map_err(|error| if operation == Operation::AllGather { error } else { self.lost(error) })
    }

    /// The number of the operation.
    fn op(&self) -> u32 {
        self.call.op.operation.number()
    }

    /// The words that ranks compare with `check_calls`.
    fn noted(&self, copies: &Copies) -> Noted {
        let place = Some(copies.offset_bytes);
        let places = match copies.way {
            BY_WORKSPACE => Places::default(),
            PUSHED | IN_PLACE => [None, place, None, None],
            _ => [place, None, None, None],
        };
        self.call.noted(self.bytes as u64, copies.way).at(places)
    }

    /// Fails the group with the error of a call whose work peers wait for, except in a capture.
    fn lost(&self, error: Error) -> Error {
        if self.recorded.is_none() { self.inner.group.fail(error) } else { error }
    }

    fn workspace(&self, bytes: usize) -> Result<Arc<SymmetricBuffer<u8>>> {
        workspace(self.inner, bytes, self.recorded.as_deref())
    }

    /// Whether copy engines may read an operand from a peer. Equal on every rank.
    ///
    /// Between GPUs of one process, the runtime may queue a copy of plainly allocated memory after work of the peer's GPU. A
    /// barrier there may wait for the copy, which is a deadlock.
    fn copies_reach(&self, operand: &View<'_>) -> bool {
        let plain = !matches!(operand.place, Place::Symmetric { .. });
        self.inner.reaches(operand, false)
            && !(plain && self.inner.group.device().kind() != DeviceKind::Host && self.inner.shares_a_process())
    }

    /// The peer's address of a part, which begins at byte `start` of an operand that peers can address.
    fn of_peer(&self, operand: &View<'_>, start: usize, peer: usize) -> Result<*mut u8> {
        let arena = &self.inner.arena;
        let address = match operand.place.after(start) {
            Place::Symmetric { offset_bytes, .. } => Some(arena.at(peer, (offset_bytes, self.bytes as u64))?),
            Place::Registered { slot, offset_bytes, .. } => {
                arena.registered(slot, peer).map(|address| address.wrapping_add(offset_bytes as usize))
            }
            Place::Plain | Place::Part | Place::Pushed => None,
        };
        address.ok_or_else(|| unaddressed(format!("a copy of the operand of rank {peer}")))
    }

    /// The kernel that reduces the parts in this rank's workspace. Launched without programmatic overlap, like the work before.
    fn reduction(&self, sources: [*const u8; MAX_WORLD_SIZE]) -> (ExchangeArgs, Geometry) {
        let Self { call, rank, world, .. } = *self;
        let reduction = call.options.reduction;
        let local = LocalReduction { op: self.op(), dtype: call.dtype, reduction, sources, rank, world };
        local.launch(&self.inner.arena, Strip { address: self.output.address, bytes: self.bytes as u64 })
    }
}

fn no_form(operation: Operation) -> Error {
    Error::unsupported(format!("a low-contention {operation}"), "copy engines have no such form")
}
