//! Low-contention collectives: copy engines move the data, beside the caller's stream and between two
//! barriers, so that multiprocessors stay with the work that runs meanwhile. After the collectives of
//! that name in PyTorch's symmetric memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::exchange::arena_offset;
use super::pending::Pending;
use super::record::Recorded;
use super::side::Beside;
use super::tensor::Cut;
use super::{Communicator, Inner, shape_of};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Call, MAX_WORLD_SIZE};
use crate::kernel::args;
use crate::kernel::geometry;
use crate::memory::{Operand, Place, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element, Reduction, WAY_COPY_ENGINES};

/// Parts of a workspace start at multiples of this: packets of the reduction are whole.
const ALIGN_BYTES: usize = 16;

/// How ranks that compare their calls tell these from others.
const DIRECT: u32 = WAY_COPY_ENGINES;
const IN_PLACE: u32 = WAY_COPY_ENGINES | 1;
const BY_WORKSPACE: u32 = WAY_COPY_ENGINES | 2;

impl Communicator {
    /// As [`all_gather`](Self::all_gather), by the copy engines, on a stream of the communicator's own that
    /// waits for the queue: what is enqueued behind this call runs beside the copies, up to
    /// [`Pending::wait`]. No multiprocessor moves data; each of the two barriers is a kernel of one block.
    ///
    /// Each rank copies from the `input` of the others where that is symmetric or adopted memory, the same
    /// elements of it on every rank. Other memory is copied first, into a workspace of as many bytes in the
    /// heap of symmetric memory: see [`reserve_workspace`](Self::reserve_workspace); so is adopted memory
    /// where ranks with GPUs are threads of one process. `output` is any memory.
    /// In place on every rank or on none. Until the end neither operand may be touched.
    ///
    /// Copies cannot be called back: where a call fails, they still read the inputs of others and write
    /// into the own `output`. So adopted memory stays allocated until every rank has closed or dropped its
    /// communicator.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn overlap(communicator: &Communicator, shard: &SymmetricBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let pending = communicator.low_contention_all_gather(shard, all, stream)?;
    ///     // Kernels enqueued here run beside the copies.
    ///     pending.wait(stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); [`Error::Unsupported`] for a stream that its owner captures, and in
    /// a capture where the workspace is too small; [`Error::OutOfMemory`] when the heap has no room for it.
    pub fn low_contention_all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        self.0.low_contention_all_gather(T::DTYPE, [&input.view_of(), &output.view_of()], &queue)
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), with its bits, by the copy engines, on a stream of the
    /// communicator's own that waits for the queue; see
    /// [`low_contention_all_gather`](Self::low_contention_all_gather).
    ///
    /// Each rank copies the parts of its `input` to the ranks that reduce them, into a workspace of as many
    /// bytes as the input has; both operands are any memory. When all parts are there a kernel reduces
    /// them, in rank order: multiprocessors are used for that step alone, and it reads and writes
    /// local memory.
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter); [`Error::Unsupported`] for a stream that its owner captures, and
    /// in a capture where the workspace is too small; [`Error::OutOfMemory`] when the heap has no room for it.
    pub fn low_contention_reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<Pending<'op>> {
        self.0.low_contention_reduce_scatter(T::DTYPE, reduction, [&input.view_of(), &output.view_of()], &queue)
    }

    /// Makes a workspace for low-contention collectives of operands of up to `bytes` bytes, in the heap of
    /// symmetric memory. Collective; blocks. Without this the first call that needs more than there
    /// is makes it, and is collective and blocks in that; a captured one is refused. A smaller one is given
    /// back when nothing uses it any more.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the heap has no such gap, [`Error::Mismatch`] when ranks ask for different sizes.
    pub fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        self.0.group.check()?;
        // Room for parts that are no multiple of a packet.
        self.0.workspace(bytes.saturating_add(self.world_size() * ALIGN_BYTES), None).map(drop)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn low_contention_all_gather_untyped(
        &self,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<Pending<'static>> {
        self.0.low_contention_all_gather(dtype, operands, queue)
    }

    /// As above.
    pub(crate) fn low_contention_reduce_scatter_untyped(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<Pending<'static>> {
        self.0.low_contention_reduce_scatter(dtype, reduction, operands, queue)
    }
}

/// What every rank's copies have in common.
struct Copies {
    /// `args::kOp*`.
    op: u32,
    dtype: Dtype,
    reduction: Reduction,
    /// Bytes of one part.
    bytes: usize,
    /// What the ranks compare beside that.
    way: u32,
    /// Where peers read, in all ranks' arenas; else 0.
    offset_bytes: u64,
    /// Whether this rank's own part is copied, beside the others.
    apart: bool,
}

impl Inner {
    fn low_contention_all_gather<'op>(
        self: &Arc<Self>,
        dtype: Dtype,
        [input, output]: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<Pending<'op>> {
        let recorded = self.begin_beside(&[("input", input), ("output", output)], queue)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        self.check_gathering(dtype, Cut::line(input.elems, world), [input, output])?;
        let bytes = input.elems * dtype.bytes();
        let part = |rank: usize| output.address.wrapping_add(rank * bytes);
        let in_place = part(rank) == input.address;
        // In place inputs lie elsewhere on every rank, and outputs do not.
        let shared = if in_place { output } else { input };
        let reached = world == 1 || bytes == 0 || self.copies_reach(shared);
        let workspace = (!reached).then(|| self.workspace(bytes, recorded.as_deref())).transpose()?;
        let way = match reached {
            true if in_place => IN_PLACE,
            true => DIRECT,
            false => BY_WORKSPACE,
        };
        let offset_bytes = arena_offset(self.group.id(), shared).filter(|_| reached).unwrap_or(0);
        let apart = !in_place;
        let copies =
            Copies { op: args::kOpAllGather, dtype, reduction: Reduction::Sum, bytes, way, offset_bytes, apart };
        self.low_contention(&copies, queue, recorded.as_deref(), |beside, fresh| {
            // SAFETY: operands have so much room (bounds, checked above) and are freed only after the
            // device's work, or are the caller's duty; so is the workspace, which side and graph own.
            let copy = |to, from: *mut u8| unsafe { beside.copy(to, from, bytes) };
            if !in_place {
                // SAFETY: as above. Apart, so that the barrier starts before what the caller enqueues next,
                // which may leave it no multiprocessor.
                unsafe { beside.copy_apart(part(rank), input.address, bytes) }?;
            }
            if let Some(workspace) = &workspace {
                copy(workspace.as_raw(), input.address)?;
            }
            if world == 1 {
                return Ok(());
            }
            self.meet_beside(beside, copies.op, fresh)?;
            // Each rank reads from another one at a time.
            for peer in (1..world).map(|step| (rank + step) % world) {
                let from = match &workspace {
                    Some(workspace) => workspace.at(peer)?,
                    None => self.of_peer(shared, peer)?.wrapping_add(if in_place { peer * bytes } else { 0 }),
                };
                copy(part(peer), from)?;
            }
            self.meet_beside(beside, copies.op, fresh)
        })
    }

    fn low_contention_reduce_scatter<'op>(
        self: &Arc<Self>,
        dtype: Dtype,
        reduction: Reduction,
        [input, output]: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<Pending<'op>> {
        let recorded = self.begin_beside(&[("input", input), ("output", output)], queue)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        self.check_scattering(dtype, None, [input, output])?;
        let bytes = output.elems * dtype.bytes();
        let pitch = bytes.next_multiple_of(ALIGN_BYTES);
        let needed = if world == 1 || bytes == 0 { 0 } else { world * pitch };
        let workspace = (needed > 0).then(|| self.workspace(needed, recorded.as_deref())).transpose()?;
        let copies = Copies {
            op: args::kOpReduceScatter,
            dtype,
            reduction,
            bytes,
            way: BY_WORKSPACE,
            offset_bytes: 0,
            apart: false,
        };
        let part = |rank: usize| input.address.wrapping_add(rank * bytes);
        self.low_contention(&copies, queue, recorded.as_deref(), |beside, fresh| {
            let Some(workspace) = &workspace else {
                if part(0) == output.address {
                    return Ok(());
                }
                // SAFETY: as below; the only rank's part is all of the input.
                return unsafe { beside.copy(output.address, part(0), bytes) };
            };
            // All workspaces are free.
            self.meet_beside(beside, copies.op, fresh)?;
            for peer in (1..world).map(|step| (rank + step) % world) {
                let to = workspace.at(peer)?.wrapping_add(rank * pitch);
                // SAFETY: the input has so many parts (bounds, checked above) and is freed only after the
                // device's work, or is the caller's duty; workspaces have a place for each rank, and
                // live as long as the side of their rank or the graph. Nobody else writes there (exclusion).
                unsafe { beside.copy(to, part(peer), bytes) }?;
            }
            // All parts are there, and all have left.
            self.meet_beside(beside, copies.op, fresh)?;
            let brought: [*const u8; MAX_WORLD_SIZE] = std::array::from_fn(|source| match source {
                own if own == rank => part(rank).cast_const(),
                other if other < world => workspace.as_raw().wrapping_add(other * pitch).cast_const(),
                _ => std::ptr::null(),
            });
            self.reduce_beside(beside, &copies, brought, output.address)
        })
    }

    /// The first step of both: all is well, and the queue can be forked.
    fn begin_beside(
        self: &Arc<Self>,
        operands: &[(&'static str, &View<'_>)],
        queue: &impl Enqueue,
    ) -> Result<Option<Arc<Recorded>>> {
        self.group.check()?;
        self.check_devices(operands, queue)?;
        let recorded = queue.recording().map(|recording| recording.part(self.group.id(), || Recorded::new(self)));
        if recorded.is_none() && queue.stream().is_capturing()? {
            return Err(Error::unsupported(
                "a low-contention collective on a stream that is being captured",
                "in Stream::capture call it on the capture; what a caller captures by itself it cannot join",
            ));
        }
        Ok(recorded)
    }

    /// Announces a call in the lane's turn and runs it beside the queue. `work` is told whether the call
    /// is the first there, whatever has run on the callers' streams.
    fn low_contention<'op, Q: Enqueue>(
        self: &Arc<Self>,
        copies: &Copies,
        queue: &Q,
        recorded: Option<&Recorded>,
        work: impl FnOnce(&Beside<'_, Q>, bool) -> Result<()>,
    ) -> Result<Pending<'op>> {
        let _entered = self.group.enter()?;
        if copies.bytes == 0 {
            let call = Call::empty(copies.op, copies.dtype, copies.reduction, 0);
            self.announce_empty(call, &mut self.lane.lock(), queue, recorded)?;
            return self.beside(queue, recorded, false, |_| Ok(()));
        }
        let mut lane = self.lane.lock();
        let mut fresh = false;
        if self.group.world_size() > 1 {
            if self.group.config().check_calls {
                // What compares calls uses the lane's scratch.
                lane.order_call(queue)?;
            }
            let first = self.announce(copies.call(), &mut lane, queue, recorded)?;
            // What is enqueued on the caller's stream next does not wait for this call: unless calls are compared
            // there, its waits are the first.
            lane.fresh |= first && !self.group.config().check_calls;
            fresh = recorded.is_none() && std::mem::take(&mut self.side.lock().lane.fresh);
        }
        self.beside(queue, recorded, copies.apart, |beside| work(beside, fresh))
    }

    /// Whether copy engines may bring an operand from a peer. The same on every rank.
    ///
    /// Between GPUs of one process the runtime orders a copy of plainly allocated memory behind what it
    /// enqueued for the peer's GPU: there a barrier may wait that waits for the copy.
    fn copies_reach(&self, operand: &View<'_>) -> bool {
        let plain = !matches!(operand.place, Place::Symmetric { .. });
        self.reaches(operand, false)
            && !(plain && self.group.device().kind() != DeviceKind::Host && self.shares_a_process())
    }

    /// Where a peer's is of an operand that peers reach.
    fn of_peer(&self, operand: &View<'_>, peer: usize) -> Result<*mut u8> {
        let address = match operand.place {
            Place::Symmetric { offset_bytes, .. } => Some(self.arena.at(peer, offset_bytes)),
            Place::Registered { slot, .. } => self.arena.registered(slot, peer),
            Place::Plain | Place::Pushed => None,
        };
        address.ok_or_else(|| Error::Internal { message: format!("the operand of rank {peer} is not known") })
    }

    /// Reduces the parts that have been brought to this rank.
    fn reduce_beside(
        &self,
        beside: &Beside<'_, impl Enqueue>,
        copies: &Copies,
        brought: [*const u8; MAX_WORLD_SIZE],
        output: *mut u8,
    ) -> Result<()> {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let bytes = copies.bytes as u64;
        let mut launch = geometry::zero_copy(shape_of(self.group.device()), bytes.div_ceil(16));
        // As the barrier before it.
        launch.geometry.programmatic = 0;
        let only_own = |value: u64| std::array::from_fn(|other| if other == rank { value } else { 0 });
        let mut into = [std::ptr::null_mut(); MAX_WORLD_SIZE];
        into[rank] = output;
        let args = args::ExchangeArgs {
            state: std::ptr::null_mut(),
            wait: self.arena.wait(false),
            rank: rank as u32,
            world: world as u32,
            lanes_log2: launch.lanes_log2,
            algorithm: args::kReduceLocal,
            op: copies.op,
            root: 0,
            dtype: copies.dtype as u32,
            reduction: copies.reduction as u32,
            slot_packets: 0,
            largest_bytes: bytes,
            learned: std::ptr::null(),
            peers: [std::ptr::null_mut(); MAX_WORLD_SIZE],
            from: brought,
            into,
            send_bytes: [0; MAX_WORLD_SIZE],
            receive_bytes: only_own(bytes),
            row_bytes: 0,
            from_pitch_bytes: 0,
            into_pitch_bytes: 0,
            table: std::ptr::null(),
            theirs_bytes: [0; MAX_WORLD_SIZE],
        };
        // SAFETY: as for the copies before it; the output is apart from all that is read, or in place.
        beside.enqueue("launch a reduction", |raw| unsafe { raw.launch_exchange(&args, &launch.geometry) })
    }
}

impl Copies {
    /// What ranks compare of a call.
    fn call(&self) -> Call {
        Call::new(self.bytes as u64, self.op, self.dtype, self.reduction, self.way, 0).at([self.offset_bytes; 2])
    }
}
